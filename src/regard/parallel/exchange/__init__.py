"""How ranks exchange arrays.

transport     what the rest of the package needs of a way to send bytes; arrays over it; `Lost`
processes     the processes of torch.distributed, with an own group and an own limit of time
agreement     ranks compare what they are about to do; a refusal on one is raised on all
redistribute  parts of an array that go to other ranks, and their gradients back
tensors       exchanges as nodes of torch's autograd; sums over ranks in the order of the ranks
"""
