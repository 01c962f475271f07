"""What attention causes: a running model whose attention is changed, and how much each head matters."""
