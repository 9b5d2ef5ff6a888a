"""How a client minimises its loss."""

from .local import Local as Local
