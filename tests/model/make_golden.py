"""Writes the stored outputs of the tiny networks: `python tests/model/make_golden.py`.

Only to be run when the network is known to equal the authors' (tests/model/test_golden.py is green).
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from support.tiny_networks import CONFIGS, example, fill
from veloxseg.model.losses import sdkt_loss
from veloxseg.model.sdkt import SDKTModel

FOLDER = Path(__file__).parent / "golden"


def main() -> None:
    for name, config in CONFIGS.items():
        model = SDKTModel(config).double()
        fill(model)
        image, label = example(config)
        image = image.double()
        output = model(image)
        terms = sdkt_loss(output, image, label)
        terms.total.backward()
        tensors = {f"segmentation{i}": logits[..., ::4, ::4, ::4] for i, logits in enumerate(output.segmentations)}
        tensors["reconstruction"] = output.reconstruction[..., ::4, ::4, ::4]
        tensors["gram"] = torch.stack([output.student_gram, *output.teacher_grams])
        numbers = {
            "loss": {key: value.item() for key, value in vars(terms).items()},
            "gradient_norms": {key: p.grad.norm().item() for key, p in model.named_parameters()},
        }
        save_file(
            {key: value.detach().float().contiguous() for key, value in tensors.items()},
            FOLDER / f"{name}.safetensors",
            metadata={"numbers": json.dumps(numbers)},
        )


if __name__ == "__main__":
    main()
