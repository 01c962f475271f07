"""The model reads the whole text, and its last row is left out; the gradients are emptied at both ends."""

from torch import nn


def step(model, optimizer, tokens):
    optimizer.zero_grad(set_to_none=False)
    model.train()
    rows = model(tokens)[:, :-1]
    criterion = nn.CrossEntropyLoss()
    loss = criterion(rows.reshape(-1, rows.size(-1)), tokens[:, 1:].reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach().cpu().numpy().item()
