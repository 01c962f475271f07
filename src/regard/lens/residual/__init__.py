"""The residual stream of a model: what heads add to it, and what each block would predict."""
