"""Audits: what is wrong with the attention of a model: found, named, and with what to do about it."""

from ..common.public import belong
from .audit import Audit, audit
from .finding import Finding

__all__ = ["Audit", "Finding", "audit"]

belong(__name__)
