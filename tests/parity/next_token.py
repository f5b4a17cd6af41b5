"""docs/how-to/generate.md in Python: which token is drawn. Written from that page, not from the C++
code."""

import math

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def random_number(seed, prompt, position):
    state = _mix((_mix((seed + _GAMMA) & _MASK) + prompt) & _MASK)
    return (_mix((state + (position + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53


def next_token(logits, seed, prompt, position, temperature, top_k=None):
    """`logits`: a list of float."""
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    largest = logits[ids[0]]
    ids.sort()
    weights = [math.exp((logits[i] - largest) / temperature) for i in ids]
    total = 0.0
    for weight in weights:
        total += weight
    drawn = random_number(seed, prompt, position) * total
    cumulated = 0.0
    for i, weight in zip(ids, weights):
        cumulated += weight
        if cumulated > drawn:
            return i
    return ids[-1]
