"""Conformance tests for a new method: inherit one class, override one method, run pytest."""

from .suite import Conformance as Conformance
