"""Two independent decoders of one request alone, to compare with.

`DenseOracle` has a contiguous cache and no pages, batches, stamps or streams, and shares no arithmetic with
the decoder: only the weights and the sizes of the recipe, since a library's bits depend on the sizes of a
product, and the products themselves: the library's own and their layout, or those of the recipe. In fp32 and bf16 its
logits equal the paged decoder's bit for bit, so any difference is a fault in the management of memory (CON-2).

`plain_logits` is the textbook model in fp64 with no concern for order; it shows that the arithmetic itself
is right.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from attrs import frozen
from torch.nn.functional import pad

from kvescrow.gpu_harness.arithmetic import ATTENTION_BLOCK, Recipe
from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind, Finding, from_findings
from kvescrow.gpu_harness.kernels import products_of
from kvescrow.gpu_harness.model import LayerWeights, ModelWeights
from kvescrow.gpu_harness.pages import PAGE_LENGTH, page_sums
from kvescrow.gpu_harness.products import LayerProducts


@frozen
class OracleRun:
    """Row i of `logits` [count, vocabulary] (on the host) is what `tokens[i]` was chosen from."""

    tokens: tuple[int, ...]
    logits: torch.Tensor
    sums: tuple[int, ...]
    """Of each whole page of the cache in order, as `page_sums` has it."""


class DenseOracle:
    """A greedy decode of one request on a contiguous cache of at most `positions` tokens."""

    def __init__(self, weights: ModelWeights, recipe: Recipe, scope: int, positions: int) -> None:
        shape = weights.shape
        capacity = -(-positions // ATTENTION_BLOCK) * ATTENTION_BLOCK
        self._weights, self._recipe, self._scope = weights, recipe, scope
        self._products = recipe.products(weights)
        cache = torch.zeros(shape.layers, 2, shape.kv_heads, capacity, shape.head_size)
        self._cache = cache.to(weights.embedding.device, weights.dtype)
        self._frequencies, self._amplitude = shape.rope_frequencies, shape.rope_amplitude
        self.length = 0

    def run(self, prompt: Sequence[int], count: int, *, chunk: int = 1) -> OracleRun:
        """`count` greedy tokens after `prompt`; the prompt is read `chunk` tokens at a time, by default one
        by one.
        """
        for start in range(0, len(prompt), chunk):
            logits = self.extend(prompt[start : start + chunk])
        rows, tokens = [logits], [int(logits.argmax())]
        while len(tokens) < count:
            rows.append(self.extend(tokens[-1:]))
            tokens.append(int(rows[-1].argmax()))
        return OracleRun(tuple(tokens), torch.stack(rows).cpu(), tuple(page_sums(self.pages()).tolist()))

    def pages(self) -> torch.Tensor:
        """The cache as whole pages of integers [n, layers, 2, PAGE_LENGTH, kv_heads, head_size]."""
        shape, count = self._weights.shape, self.length // PAGE_LENGTH
        whole = self._cache[:, :, :, : count * PAGE_LENGTH]
        split = whole.reshape(shape.layers, 2, shape.kv_heads, count, PAGE_LENGTH, shape.head_size)
        return _bits(split.permute(3, 0, 1, 4, 2, 5))

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append `tokens` and return the logits [vocabulary] after the last."""
        tile = None if self._recipe.kernels else self._recipe.query_tile  # a kernel makes tiles of its own
        most = min(tile or len(tokens), self._recipe.row_bucket or len(tokens))
        with products_of(self._recipe):
            for start in range(0, len(tokens), most):
                hidden = self._append(tokens[start : start + most])
            return self._products.head(self._norm(self._rows(hidden[-1:]), self._weights.norm))[0]

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """x padded with zero rows to a size at which the device's products have one row order."""
        wanted = self._recipe.row_bucket or max(len(x), self._recipe.least_rows)
        return pad(x, (0, 0, 0, wanted - len(x)))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        square = torch.square(x.float()).mean(dim=1, keepdim=True)
        return (x.float() * torch.rsqrt(square + self._weights.shape.norm_eps)).to(x.dtype) * weight

    def _append(self, tokens: Sequence[int]) -> torch.Tensor:
        weights = self._weights
        device = weights.embedding.device
        begin, self.length = self.length, self.length + len(tokens)
        angles = [[p * f for f in self._frequencies] for p in range(begin, self.length)]
        cosines = torch.tensor([[math.cos(a) * self._amplitude for a in row] for row in angles], device=device)
        sines = torch.tensor([[math.sin(a) * self._amplitude for a in row] for row in angles], device=device)
        x = self._rows(weights.embedding[torch.tensor(tokens, device=device)])
        for layer, products, cache in zip(weights.layers, self._products.layers, self._cache, strict=True):
            query, key, value = self._projected(products, layer, self._norm(x, layer.input_norm), len(tokens))
            cache[0, :, begin : self.length] = _turn(key, cosines, sines)
            cache[1, :, begin : self.length] = value
            attended = self._attention(_turn(query, cosines, sines), cache, begin)
            x = x + products.output(self._rows(attended))
            x = x + self._swiglu(self._norm(x, layer.feed_norm), products)
        return x[: len(tokens)]

    def _projected(
        self, products: LayerProducts, layer: LayerWeights, x: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of the first `count` rows, [heads, count, head_size] each, with the scope's adapters."""
        shape = self._weights.shape
        widths = [shape.query_width, shape.kv_width, shape.kv_width]
        query, key, value = torch.split(products.query_key_value(x), widths, dim=1)
        if self._weights.scopes > 1:
            key = key + self._extra(x, layer.key_adapter_in, layer.key_adapter_out)
            value = value + self._extra(x, layer.value_adapter_in, layer.value_adapter_out)
        query, key, value = (_heads(part[:count], shape.head_size) for part in (query, key, value))
        return query, key, value

    def _extra(self, x: torch.Tensor, inward: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
        strength = torch.sum(x.float() * inward[self._scope].float(), dim=1, keepdim=True)
        return (strength * outward[self._scope].float()).to(x.dtype)

    def _swiglu(self, x: torch.Tensor, products: LayerProducts) -> torch.Tensor:
        gate, up = torch.tensor_split(products.gate_up(x), 2, dim=1)
        return products.down(torch.nn.functional.silu(gate) * up)

    def _attention(self, query: torch.Tensor, cache: torch.Tensor, begin: int) -> torch.Tensor:
        """Attention of the new tokens over the cache, block by block: [tokens, query width]."""
        shape = self._weights.shape
        count = query.shape[1]
        if self._recipe.kernels:
            from kvescrow.gpu_harness.kernels.contiguous import attend_one_request

            found = attend_one_request(query, cache, begin, self._recipe.query_tile or 1)
            return found.transpose(0, 1).reshape(count, shape.query_width)
        scaled = self._grouped(query.float() * shape.head_size**-0.5)
        tokens = torch.arange(begin, begin + count, device=query.device).repeat_interleave(shape.group)
        positions = pad(tokens, (0, scaled.shape[1] - len(tokens)))
        parts = []
        for block in range(0, self.length, ATTENTION_BLOCK):
            key, value = (cache[i, :, block : block + ATTENTION_BLOCK].float().contiguous() for i in (0, 1))
            hidden = positions[:, None] < torch.arange(block, block + ATTENTION_BLOCK, device=query.device)
            parts.append(self._block(scaled, key, value, hidden))
        top = torch.stack([part[0] for part in parts]).amax(dim=0)
        numerator, denominator = torch.zeros_like(parts[0][2]), torch.zeros_like(parts[0][1])
        for maximum, total, output in parts:
            weight = torch.exp(maximum - top)
            numerator, denominator = numerator + output * weight, denominator + total * weight
        result = (numerator / denominator)[:, : count * shape.group]
        split = result.reshape(shape.kv_heads, count, shape.group * shape.head_size)
        return split.transpose(0, 1).reshape(count, shape.query_width).to(query.dtype)

    def _grouped(self, query: torch.Tensor) -> torch.Tensor:
        """[heads, count, size] as [kv_heads, (token, head of the group), size], rows padded as the recipe
        says.
        """
        shape = self._weights.shape
        rows = query.reshape(shape.kv_heads, shape.group, -1, shape.head_size).transpose(1, 2).flatten(1, 2)
        wanted = max((self._recipe.query_tile or 0) * shape.group, rows.shape[1], self._recipe.least_rows)
        return pad(rows, (0, 0, 0, wanted - rows.shape[1])).contiguous()

    def _block(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        heads = query.shape[0]
        extra = (0, 0, 0, 0, 0, (self._recipe.item_bucket or heads) - heads)
        query, key, value = (pad(operand, extra) for operand in (query, key, value))
        scores = torch.where(hidden, -torch.inf, torch.matmul(query, key.mT))
        maximum = scores.max(dim=2, keepdim=True).values
        shares = torch.exp(scores - torch.where(maximum.isinf(), 0.0, maximum))
        return maximum[:heads], shares.sum(dim=2, keepdim=True)[:heads], torch.matmul(shares, value)[:heads]


def _heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """[tokens, heads x size] as [heads, tokens, size]."""
    return x.reshape(len(x), -1, size).transpose(0, 1)


def _turn(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    low, high = x[..., :half].float(), x[..., half:].float()
    return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1).to(x.dtype)


def compare_with_oracle(request: int, tokens: Sequence[int], logits: torch.Tensor, oracle: OracleRun) -> Evidence:
    """TOKENS_DIFFER and LOGITS_DIFFER, row by row and bit for bit; `logits` [count, vocabulary], on the
    host.
    """
    findings = []
    for row, (token, values) in enumerate(zip(tokens, logits, strict=True)):
        if token != oracle.tokens[row]:
            findings.append(_row_finding(EvidenceKind.TOKENS_DIFFER, request, str(oracle.tokens[row]), str(token)))
        if not same_bits(values, oracle.logits[row]):
            difference = (values.double() - oracle.logits[row].double()).abs().max()
            found = f"row {row} differs by {float(difference):.3g}"
            findings.append(_row_finding(EvidenceKind.LOGITS_DIFFER, request, "the same bits", found))
    return from_findings(findings)


def _row_finding(kind: EvidenceKind, request: int, expected: str, found: str) -> Finding:
    return Finding(kind, -1, request, -1, expected, found)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype are equal as integers, so that NaN and the sign of zero count."""
    return torch.equal(_bits(one), _bits(other))


def _bits(values: torch.Tensor) -> torch.Tensor:
    integer = {4: torch.int32, 2: torch.int16, 8: torch.int64}[values.dtype.itemsize]
    return values.contiguous().view(integer)


@torch.inference_mode()
def plain_logits(weights: ModelWeights, tokens: Sequence[int], scope: int = 0) -> torch.Tensor:
    """Logits [tokens, vocabulary] of a whole sequence in fp64 on the host, from the definition of the
    model.
    """
    shape, count = weights.shape, len(tokens)
    wide = weights.converted("cpu", torch.float64)
    x = wide.embedding[torch.tensor(tokens)]
    frequencies = torch.tensor(shape.rope_frequencies, dtype=torch.float64)
    amplitude = torch.tensor([shape.rope_amplitude], dtype=torch.float64)
    turns = torch.polar(amplitude, torch.arange(count)[:, None] * frequencies)
    mask = torch.ones(count, count, dtype=torch.bool).tril()

    def norm(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return values / (values.pow(2).mean(-1, keepdim=True) + shape.norm_eps).sqrt() * weight

    split = partial(_heads, size=shape.head_size)

    def turned(values: torch.Tensor) -> torch.Tensor:
        pairs = torch.complex(*values.chunk(2, -1)) * turns
        return torch.cat([pairs.real, pairs.imag], -1)

    for layer in wide.layers:
        h = norm(x, layer.input_norm)
        key = h @ layer.key.T + torch.outer(h @ layer.key_adapter_in[scope], layer.key_adapter_out[scope])
        value = h @ layer.value.T + torch.outer(h @ layer.value_adapter_in[scope], layer.value_adapter_out[scope])
        keys, values = (t.repeat_interleave(shape.group, 0) for t in (turned(split(key)), split(value)))
        scores = turned(split(h @ layer.query.T)) @ keys.mT / shape.head_size**0.5
        attended = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ values
        x = x + attended.transpose(0, 1).flatten(1) @ layer.output.T
        h = norm(x, layer.feed_norm)
        x = x + (torch.nn.functional.silu(h @ layer.gate.T) * (h @ layer.up.T)) @ layer.down.T
    return norm(x, wide.norm) @ wide.head.T
