"""A training run without a fault, whose steps take about 0.3, 3 or 30 ms: ``--size small``, ``medium`` or ``large``.

``--runs N`` records it N times, into folders below ``out``.
"""

import torch
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, argument_parser, make_model, train_step, watched

SIZES = {"small": (64, 1), "medium": (512, 3), "large": (1024, 9)}


def main() -> None:
    parser = argument_parser()
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    in_memory = torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES).split(BATCH_SIZE)
    width, num_layers = SIZES[arguments.size]
    model = make_model(width, num_layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out = arguments.out
    for number in range(arguments.runs):
        arguments.out = out / f"run{number}"
        with watched(arguments) as batches:
            for inputs in batches(in_memory):
                train_step(model, optimizer, model(inputs).square().mean())


if __name__ == "__main__":
    main()
