"""Attention as layers: small parts that are put together."""

__all__: list[str] = []
