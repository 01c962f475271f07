"""How ranks exchange bytes: nothing here computes with numbers.

transport   what the rest of the package needs of a way to send bytes; the error that names a rank that is lost
processes   the processes of torch.distributed, with an own group and an own limit of time
agreement   ranks compare what they are about to do; a refusal on one is raised on all
alone       a group of one rank
moves       parts of a tensor that go to other ranks, and their gradients back; moving: of tensors with autograd
"""
