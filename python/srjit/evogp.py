"""EvoGP: its forests evaluated by an engine, in the GPU's memory.

    from srjit.evogp import SymbolicRegression  # instead of that of evogp.problem
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._device import MOST_TOKENS, DeviceLoss
from ._engine import Engine
from ._expressions import CONSTANT, VARIABLE, ops
from ._packages import needs

with needs("evogp"):
    import evogp.problem
    import torch
    from evogp.tree import Forest
    from evogp.tree.utils import FUNCS_NAMES, NType

# EvoGP's functions as operators.
_OPERATORS = {
    "if": "if", "+": "add", "-": "sub", "*": "mul", "/": "div", "loose_div": "loose_div", "pow": "pow",
    "loose_pow": "loose_pow", "max": "max", "min": "min", "<": "lt_sign", ">": "gt_sign", "<=": "le_sign", ">=": "ge_sign",
    "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "log": "log",
    "loose_log": "loose_log", "exp": "exp", "inv": "inv", "loose_inv": "loose_inv", "neg": "neg", "abs": "abs",
    "sqrt": "sqrt", "loose_sqrt": "loose_sqrt",
}  # fmt: skip
# A code that no operator has.
_NO_OPERATOR = 2**15 - 1


class SymbolicRegression(evogp.problem.SymbolicRegression):
    """The problem of EvoGP of this name. Its fitness is computed by sr-jit, and stays in the GPU's memory.

    Args:
        *args, **kwargs: As of EvoGP's class. ``execute_mode`` is not used.
        math: As of `srjit.Engine`. EvoGP itself is compiled with approximate instructions.

    A fitness is the negative mean of squared errors (of absolute ones with ``use_MSE=False``), as EvoGP has it, up to
    rounding. Where a quotient or reciprocal has the divisor 0, EvoGP has NaN and sr-jit an infinite value, so a tree may
    have a finite fitness here and none there. Trees have one output; those of more than 256 nodes are evaluated by way of
    the host.

    Raises:
        ValueError: A function of EvoGP that sr-jit does not know, labels of several outputs.
    """

    def __init__(self, *args: Any, math: str = "fast", **kwargs: Any):
        super().__init__(*args, **kwargs)
        points, labels = self.datapoints, self.labels
        if labels.ndim == 2 and labels.shape[1] != 1:
            raise ValueError(f"the labels have {labels.shape[1]} outputs, expected 1")
        self.engine = Engine(f"cuda:{points.device.index or 0}", precision="f32", math=math)
        # By columns, which an engine reads fastest.
        columns = points.float().t().contiguous().t()
        self.data = self.engine.upload(columns, labels.float().reshape(-1))
        self._table = _codes(points.shape[1], FUNCS_NAMES).to(points.device)
        self._losses: dict[tuple[str, int], DeviceLoss] = {}

    def evaluate(self, forest: Forest, use_MSE: bool = True) -> torch.Tensor:
        """The fitness of every tree, shape (trees,). Puts work on torch's current stream, and does not wait for it, unless
        trees have room for more than 256 nodes.

        Raises:
            TypeError: Something else than a forest of single trees.
            ValueError: Trees of several outputs.
        """
        if not isinstance(forest, Forest):
            raise TypeError(f"a {type(forest).__name__}, expected a Forest of EvoGP")
        if forest.output_len != 1:
            raise ValueError(f"trees of {forest.output_len} outputs, expected 1")
        values = forest.batch_node_value
        codes = codes_of(forest.batch_node_type, values, self._table)
        name = "mse" if use_MSE else "mae"
        losses = self._loss_of(name, *codes.shape)(codes, values, prefix=True).values
        if codes.shape[1] > MOST_TOKENS:
            self._evaluate_long(forest, codes, name, losses)
        return losses.neg_()

    def _loss_of(self, name: str, trees: int, most_tokens: int) -> DeviceLoss:
        key = (name, min(most_tokens, MOST_TOKENS))
        found = self._losses.get(key)
        if found is None or found.expressions < trees:
            found = self.engine.device_loss(self.data, trees, _OPERATORS.values(), most_tokens=key[1], loss=name)
            self._losses[key] = found
        return found

    def _evaluate_long(self, forest: Forest, codes: torch.Tensor, name: str, losses: torch.Tensor) -> None:
        """Writes the losses of trees that are too long for a device."""
        sizes = forest.batch_subtree_size[:, 0].long()
        long = torch.nonzero(sizes > MOST_TOKENS).flatten()
        if not len(long):
            return
        is_used = torch.arange(codes.shape[1], device=codes.device) < sizes[long, None]
        offsets = torch.nn.functional.pad(sizes[long].cumsum(0), (1, 0))
        arrays = tuple(array.cpu().numpy() for array in (codes[long][is_used], forest.batch_node_value[long][is_used].double(), offsets))
        found = self.engine.loss(arrays, self.data, loss=name, prefix=True, simplify=False)
        losses[long] = torch.as_tensor(found.values, dtype=losses.dtype, device=losses.device)


def codes_of(types: torch.Tensor, values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The token codes of nodes, by `table`, one row for each type of node (`_codes`)."""
    places = values.to(torch.int32).clamp_(0, table.shape[1] - 1)
    # A sum of int32 and int16 is one of int32.
    return table.reshape(-1)[places.add_(types.clamp(0, table.shape[0] - 1), alpha=table.shape[1])]


def _codes(columns: int, functions: Sequence[str]) -> torch.Tensor:
    """int32, by type of node and number: the codes of variables, constants and functions; the last row is no type."""
    unknown = [name for name in functions if name not in _OPERATORS]
    if unknown:
        raise ValueError(f"functions of EvoGP that have no operator here: {', '.join(unknown)}")
    # One more than there are, for numbers that are too large.
    width = max(columns, len(functions)) + 1
    table = torch.full((NType.TFUNC + 2, width), _NO_OPERATOR, dtype=torch.int32)
    table[NType.VAR, :columns] = VARIABLE - torch.arange(columns, dtype=torch.int32)
    table[NType.CONST] = CONSTANT
    types = {1: NType.UFUNC, 2: NType.BFUNC, 3: NType.TFUNC}
    for number, name in enumerate(functions):
        op = ops[_OPERATORS[name]]
        table[types[op.arity], number] = op.code
    return table
