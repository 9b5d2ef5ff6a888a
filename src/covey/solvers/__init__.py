"""What a client does with its loss."""

from .local import Local as Local
