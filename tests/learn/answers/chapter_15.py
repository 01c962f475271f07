"""Right answers to the exercises of chapter 15."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_


def loss__logaddexp(logits, tokens, padding):
    """The sum of exponentials with np.logaddexp, along the vocabulary."""
    b, n, _ = logits.shape
    losses = [
        np.logaddexp.reduce(logits[i, j]) - logits[i, j, tokens[i, j + 1]]
        for i in range(b)
        for j in range(n - 1)
        if tokens[i, j + 1] != padding
    ]
    return np.mean(losses) if losses else 0.0


def loss__loops(logits, tokens, padding):
    """Token by token, with the math module."""
    total, count = 0.0, 0
    for text, words in zip(logits, tokens):
        for row in range(len(words) - 1):
            target = int(words[row + 1])
            if target == padding:
                continue
            largest = max(text[row])
            total += largest + math.log(sum(math.exp(each - largest) for each in text[row])) - text[row][target]
            count += 1
    return total / count if count else 0


def loss__one_hot(logits, tokens, padding):
    """The right token as a one-hot vector, and a sum of products."""
    z, t = logits[:, :-1], tokens[:, 1:]
    top = z.max(axis=2)
    lse = top + np.log(np.exp(z - top[:, :, None]).sum(axis=2))
    one_hot = np.eye(z.shape[2])[t]
    weight = (t != padding).astype(float)
    return ((lse - np.einsum("bnv,bnv->bn", z, one_hot)) * weight).sum() / max(weight.sum(), 1)


def loss__torch(logits, tokens, padding):
    """With PyTorch's cross entropy."""
    logits, tokens = torch.as_tensor(logits), torch.as_tensor(tokens)
    targets = tokens[:, 1:].flatten()
    if not (targets != padding).any():
        return 0.0
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets, ignore_index=padding).item()


def alone(task, given):
    n = len(given)
    if task == "gaps":
        return np.ones((n, n), bool)
    triangle = np.tri(n, dtype=bool)
    if task == "prefix":
        length = int(given.sum())
        triangle[:, :length] = True
    return triangle


def mask__blocks(task, document, given):
    """Document by document, each with a mask of its own."""
    out = np.zeros((len(document), len(document)), bool)
    for number in set(document.tolist()):
        own = np.where(document == number)[0]
        out[np.ix_(own, own)] = alone(task, given[own])
    return out


def mask__comprehension(task, document, given):
    """A list of lists."""
    n = len(document)
    reads = {"next": lambda i, j: j <= i, "gaps": lambda i, j: True, "prefix": lambda i, j: j <= i or bool(given[j])}[
        task
    ]
    rows = [[bool(document[i] == document[j]) and reads(i, j) for j in range(n)] for i in range(n)]
    return np.array(rows, dtype=bool).reshape(n, n)


RULES = {
    "next": lambda i, j, given: j <= i,
    "gaps": lambda i, j, given: (i == i) & (j == j),
    "prefix": lambda i, j, given: (j <= i) | (given[i] & given[j]),
}


def mask__question_rows(task, document, given):
    """The question as a block: its rows and its keys; and a dict of rules."""
    i, j = np.indices((len(document), len(document)))
    return RULES[task](i, j, given) & (document[i] == document[j])


def mask__tril(task, document, given):
    """With np.tril and np.equal.outer."""
    together = np.equal.outer(document, document)
    if task == "gaps":
        return together
    causal = np.tril(np.ones_like(together))
    if task == "prefix":
        causal = np.logical_or(causal, given[np.newaxis, :])
    return np.logical_and(together, causal)


def step__autograd(model, optimizer, tokens):
    """Gradients from torch.autograd.grad, and clipping by hand."""
    model.train()
    parameters = list(model.parameters())
    logs = model(tokens[:, :-1]).log_softmax(-1)
    loss = -logs.gather(-1, tokens[:, 1:, None]).mean()
    gradients = torch.autograd.grad(loss, parameters)
    length = torch.sqrt(sum((each**2).sum() for each in gradients))
    factor = min(1.0, 1.0 / (float(length) + 1e-6))
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient * factor
    optimizer.step()
    return loss.item()


def cross_entropy(logits, targets):
    picked = logits[torch.arange(len(targets)), targets]
    return (logits.logsumexp(-1) - picked).mean()


def step__log_sum_exp(model, optimizer, tokens):
    """Cross entropy by hand: log-sum-exp minus the logit of the right token."""
    model.train()
    model.zero_grad()
    logits = model(tokens[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    clip_grad_norm_(model.parameters(), 1.0, norm_type=2)
    optimizer.step()
    return loss.detach().item()


def step__whole_text(model, optimizer, tokens):
    """The model reads the whole text, and its last row is left out; the gradients are emptied at both ends."""
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


def step__zero_last(model, optimizer, tokens):
    """Old gradients are set to None by hand."""
    model.train(True)
    for parameter in model.parameters():
        parameter.grad = None
    x, y = tokens[:, :-1], tokens[:, 1:]
    loss = F.cross_entropy(model(x).transpose(1, 2), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)
    optimizer.step()
    return float(loss)


@torch.no_grad()
def generate__array(model, tokens, count, context):
    """An array of the final size is filled."""
    texts, n = tokens.shape
    result = tokens.new_zeros(texts, n + count)
    result[:, :n] = tokens
    was_training = model.training
    model.eval()
    for end in range(n, n + count):
        start = max(0, end - context)
        probabilities = model(result[:, start:end])[:, -1].softmax(dim=-1)
        result[:, end] = probabilities.max(dim=-1).indices
    if was_training:
        model.train()
    return result


def generate__list(model, tokens, count, context):
    """A list of columns, and torch.stack."""
    before = model.training
    model.eval()
    columns = list(tokens.unbind(1))
    with torch.no_grad():
        while len(columns) < tokens.shape[1] + count:
            logits = model(torch.stack(columns[-context:], dim=1))
            columns.append(torch.argmax(logits[:, -1, :], dim=-1))
    model.train(before)
    return torch.stack(columns, dim=1)


@torch.inference_mode()
def extended(model, tokens, count, context):
    if count == 0:
        return tokens
    new = model(tokens[:, -context:])[:, -1].topk(1).indices
    return extended(model, torch.hstack([tokens, new]), count - 1, context)


def generate__recursion(model, tokens, count, context):
    """One token, and then the rest."""
    training = model.training
    try:
        return extended(model.eval(), tokens, count, context)
    finally:
        model.train(training)


def one(model, text, count, context):
    for _ in range(count):
        logits = model(text[-context:][None])[0]
        text = torch.cat([text, logits[-1].argmax()[None]])
    return text


def generate__text_by_text(model, tokens, count, context):
    """Each text alone."""
    mode = model.training
    model.eval()
    with torch.no_grad():
        out = torch.stack([one(model, text, count, context) for text in tokens])
    model.train(mode)
    return out
