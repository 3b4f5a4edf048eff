"""What is to be trained on what: settings, data and earlier work, resolved and checked before anything is written."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veloxseg.dataset.seen import Learning
from veloxseg.dataset.splits import Split
from veloxseg.errors import DatasetError
from veloxseg.model.losses import choose_loss
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.train.choose import choose_for
from veloxseg.train.first_weights import find_first_weights
from veloxseg.train.going_on import Extension, longer, reconcile
from veloxseg.train.objective import target_of
from veloxseg.train.recipe import Recipe, network_settings, trained_plan
from veloxseg.train.run_folder import Run, StoredSettings, data_hash
from veloxseg.train.settings import check_settings, make_recipe

__all__ = ["Job"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training that can begin."""

    prepared: Prepared
    run: Run
    stored: StoredSettings  # what settings.json holds, or will hold
    plan: Plan  # of the modalities that the recipe chooses
    split: Split
    architecture: str
    network: dict[str, Any]  # the settings of `architecture`
    began: float  # the moment from which a timed training counts

    @classmethod
    def open(cls, prepared: str | Path, folder: str | Path, settings: dict[str, Any], *, resume: bool) -> "Job":
        began = time.monotonic()
        data, run = Prepared.open(prepared), Run(folder)
        data_now, earlier = data_hash(data), run.read_settings() if resume and run.exists else None
        if earlier is None:
            choice = choose_for(check_settings(settings), data)
            stored = StoredSettings(data=data_now, settings=make_recipe(choice.settings), why=choice.why)
        elif data_now != earlier.data:
            raise DatasetError(
                f"{prepared} is not the data that {folder} was started with; prepare it as before, or train anew"
            )
        else:
            stored = _continued(earlier, settings, run)
        recipe = stored.settings
        plan = trained_plan(data.plan, recipe)
        architecture, network = network_settings(recipe, plan)
        choose_loss(recipe.loss, target_of(plan))  # an unknown name is refused here
        cases = data.split(recipe.fold)
        if not cases.train:
            raise DatasetError(f"{prepared} has no training case in this split; prepare more cases, or choose a --fold")
        if recipe.init and stored.first_weights is None:
            stored = replace(stored, first_weights=find_first_weights(recipe.init, architecture, network))
        return cls(
            prepared=data,
            run=run,
            stored=stored,
            plan=plan,
            split=cases,
            architecture=architecture,
            network=network,
            began=began,
        )

    @property
    def recipe(self) -> Recipe:
        return self.stored.settings

    @property
    def data(self) -> str:
        """The hash of `prepared`."""
        return self.stored.data

    @property
    def extension(self) -> Extension | None:
        """The latest change of the training's length."""
        return self.stored.extended[-1] if self.stored.extended else None

    def learning(self) -> Learning:
        """The cases that the model will have seen, those of its first weights included.

        Validation cases choose the best epoch; where the last one is taken, they choose nothing and stay unseen.
        """
        split = self.split if self.recipe.select == "best" else replace(self.split, validation=())
        own = self.prepared.learning(split, self.plan.names)
        first = self.stored.first_weights
        return own if first is None else own.after(first.learning)


def _continued(earlier: StoredSettings, settings: dict[str, Any], run: Run) -> StoredSettings:
    new = reconcile(earlier.settings, settings)
    if not new:
        return earlier
    recipe, extension = longer(earlier.settings, new, run.checkpoints)
    return replace(earlier, settings=recipe, extended=(*earlier.extended, extension))
