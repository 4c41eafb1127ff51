"""Breeds formulas in a GPU's memory: torch selects, crosses and mutates, srjit evaluates. Needs torch and a GPU."""

import srjit
import torch

torch.set_default_device("cuda")
torch.manual_seed(1)
TREES, NODES, GENERATIONS = 100_000, 15, 60

X = torch.rand(1_000, 2) * 4 - 2
y = X[:, 0] * X[:, 0] + 1.5 * X[:, 1] - X[:, 0] * X[:, 1]
engine = srjit.Engine("cuda:0", precision="f32", math="fast")
data = engine.upload(X.t().contiguous().t(), y)  # by columns, which the engine reads fastest
evaluate = engine.device_loss(data, TREES, ["add", "sub", "mul"], most_tokens=NODES)

# Full binary trees in prefix. So every tree has its operators at the same places.
is_inner = torch.isin(torch.arange(NODES), torch.tensor([0, 1, 2, 5, 8, 9, 12]))
operators = torch.tensor([srjit.ops[name].code for name in ("add", "sub", "mul")], dtype=torch.int32)
leaves = torch.tensor([srjit.VARIABLE, srjit.VARIABLE - 1, srjit.CONSTANT], dtype=torch.int32)


def random_codes():
    return torch.where(is_inner, operators[torch.randint(3, (TREES, NODES))], leaves[torch.randint(3, (TREES, NODES))])


codes, numbers = random_codes(), torch.randn(TREES, NODES)
for _ in range(GENERATIONS):
    losses = evaluate(codes, numbers, prefix=True).values.nan_to_num(float("inf"))
    best = losses.topk(TREES // 20, largest=False).indices
    mothers, fathers = best[torch.randint(len(best), (2, TREES))]
    mothers[0] = fathers[0] = best[0]
    of_mother, is_mutated = torch.rand(TREES, NODES) < 0.5, torch.rand(TREES, NODES) < 0.03
    is_mutated[0] = False
    codes = torch.where(of_mother, codes[mothers], codes[fathers])
    codes = torch.where(is_mutated, random_codes(), codes)
    numbers = torch.where(of_mother, numbers[mothers], numbers[fathers])
    numbers += 0.3 * is_mutated * torch.randn(TREES, NODES)

tree = srjit.Population.from_arrays(codes[0].cpu().numpy(), numbers[0].double().cpu().numpy(), [0, NODES], prefix=True)
print(f"{losses.min().item():.3g}  {srjit.simplify(tree[0])}")
