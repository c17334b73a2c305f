"""The models of an instance as files, for whoever wants to read them or run a checker by hand."""

from pathlib import Path

from kvescrow.checks.agreement.commands import commands_of, identifier
from kvescrow.checks.agreement.languages import murphi, promela
from kvescrow.checks.agreement.tla_model import of_instance
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.spec.vocabulary import UserError


def models_of(name: str) -> dict[str, str]:
    """Return file name -> text of the models of the instance called `name`, in TLA+, Promela and Murphi.

    Raises `UserError` where there is no such instance.
    """
    instance = instance_called(name)
    model, system = of_instance(instance), commands_of(instance)
    return {
        **{f"{module}.tla": text for module, text in model.modules.items()},
        f"{model.name}.cfg": model.configuration,
        f"{identifier('system', name)}.pml": promela(system),
        f"{identifier('system', name)}.m": murphi(system),
    }


def write_models(name: str, folder: Path) -> list[str]:
    """Write the models of the instance called `name` into `folder`; return the names of the files.

    Raises `UserError` where there is no such instance, or a file cannot be written.
    """
    files = models_of(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); name a folder that can") from error
    return sorted(files)
