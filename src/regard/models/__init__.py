"""Small models that train on the user's own text, pictures and tables."""

__all__: list[str] = []
