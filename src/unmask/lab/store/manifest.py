"""The manifest of a study: what its tables belong to, in a file that vouches for itself."""

import json
from collections.abc import Mapping
from typing import Any

from unmask.base.environment import code_fingerprint, code_parts, versions
from unmask.base.errors import OtherStudy, SchemaError
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json, to_plain
from unmask.lab.store.hashes import fingerprint
from unmask.lab.store.places import Place
from unmask.lab.store.schemas import FORMAT, OLD_FORMATS
from unmask.lab.store.shards import write_synced

Manifest = dict[str, Any]
NAME = "manifest.json"


class DamagedManifest(SchemaError):
    """A manifest is not what was written; `unmask study run` writes it anew where shards are of its study."""

    def __init__(self, folder: Place, why: str):
        self.why = why
        super().__init__(
            f"{str(folder / NAME)!r} is damaged ({why}); allowed: the file as it was written; restore it, or run "
            f"`unmask study run FILE --out {folder}` with the file of the study: it is written anew and sound shards "
            f"are kept (`unmask study check {folder}` lists what is damaged)"
        )


class OldFormat(SchemaError):
    """A folder was written in a format that this version does not read."""


def begun(study: Mapping[str, Any]) -> Manifest:
    """The manifest of a study that starts now, with this code."""
    settings = to_plain(study)
    return {
        "study": settings,
        "fingerprint": fingerprint(settings),
        "versions": versions(),
        "code": [code_entry()],
        "tasks": {},
        "models": {},
    }


def code_entry() -> dict[str, Any]:
    """The code that computes now, as a manifest lists it."""
    return {"fingerprint": code_fingerprint(), "parts": code_parts()}


def write_manifest(folder: Place, manifest: Manifest) -> None:
    """Whole or not at all."""
    body = {key: value for key, value in sorted(manifest.items()) if key != "format"}
    write_synced(folder / NAME, to_hashed_json(FORMAT, body).encode())


def read_manifest(folder: Place) -> Manifest:
    """The manifest of a folder; refused where it is of another format, edited, cut short or gone."""
    path = folder / NAME
    try:
        text = path.read_bytes().decode()
        body = from_hashed_json(FORMAT, text, dict, kind="manifest")
    except HashMismatch as error:
        _check_format(folder, text)
        raise DamagedManifest(folder, str(error)) from error
    except FileNotFoundError as error:
        raise DamagedManifest(folder, "it is not there") from error
    except (OSError, ValueError) as error:
        raise DamagedManifest(folder, str(error)) from error
    return {"format": FORMAT, **body}


def _check_format(folder: Place, text: str) -> None:
    """Refuse a whole manifest of another format, which is no damage."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    named = whole.get("format") if isinstance(whole, dict) else None
    # One of ours has its values in `body`: there the format's name is what was damaged.
    if named in OLD_FORMATS and "body" not in whole:
        study = whole.get("study")
        name = study.get("name") if isinstance(study, dict) else None
        raise OldFormat(
            f"format of {str(folder)!r} is {named!r}; allowed: {FORMAT!r}, which holds more; run its study "
            f"({name!r}) again with `unmask study run FILE --out NEWFOLDER`; what is there is left as it is"
        )


def check_same(folder: Place, manifest: Manifest, ours: Manifest, *, accept_code: bool) -> bool:
    """Refuse to go on with another study, other versions or other code; whether code was accepted that is not listed.

    Other code under the same version is accepted where the user says so.
    """
    if manifest["fingerprint"] != ours["fingerprint"]:
        theirs, settings = manifest["study"], ours["study"]
        changed = sorted(k for k in {**theirs, **settings} if theirs.get(k) != settings.get(k))
        raise OtherStudy(
            f"{str(folder)!r} holds the study {theirs.get('name')!r} with other settings "
            f"({', '.join(changed)} differ); allowed: the same study, which is then resumed; choose another folder"
        )
    check_versions(folder, manifest["versions"])
    if ours["code"][0]["fingerprint"] in [entry["fingerprint"] for entry in manifest["code"]]:
        return False
    if not accept_code:
        old, new = manifest["code"][-1], ours["code"][0]
        changed = sorted(k for k in {**old["parts"], **new["parts"]} if old["parts"].get(k) != new["parts"].get(k))
        raise OtherStudy(
            f"{str(folder)!r} was made with other code of the same version ({', '.join(changed)} differ; fingerprint "
            f"{old['fingerprint']} then, {new['fingerprint']} now); allowed: the same code, or numbers might mix; "
            "choose another folder, or go on with `unmask study run ... --accept-code`: manifest and report then say so"
        )
    return True


def check_versions(folder: Place, theirs: Mapping[str, str]) -> None:
    """Refuse results of another unmask or torch."""
    now = versions()
    changed = [f"{k} {theirs.get(k)} then, {now[k]} now" for k in ("unmask", "torch") if theirs.get(k) != now[k]]
    if changed:
        raise OtherStudy(
            f"{str(folder)!r} was begun with other versions ({'; '.join(changed)}); allowed: the same "
            "ones, or numbers would mix; choose another folder"
        )


def planned(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Names of all planned shards, each with its model, task, split, block and number of prompts."""
    return {
        name: {"model": model, **about}
        for model, noted in manifest["models"].items()
        for name, about in noted["shards"].items()
    }
