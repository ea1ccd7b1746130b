"""The manifest of a study: the study, versions and code that its tables belong to, its data and models."""

from collections.abc import Iterable, Mapping
from typing import Any

from unmask.base.environment import code_fingerprint, code_parts, versions
from unmask.base.errors import OtherStudy, SchemaError
from unmask.base.json_files import to_hashed_json, to_plain
from unmask.lab.store.remote import StoreFiles
from unmask.lab.store.schemas import FORMAT, fingerprint
from unmask.lab.store.shard import Info, read_body

Manifest = dict[str, Any]
MANIFEST = "manifest.json"


class DamagedManifest(SchemaError):
    """A manifest is damaged; `unmask study run` writes it anew where the shards are of its study."""

    def __init__(self, files: StoreFiles, reason: str):
        self.reason, folder = reason, files.address
        super().__init__(
            f"{f'{folder}/{MANIFEST}'!r} is damaged ({reason}); allowed: the file as it was written; restore it, or "
            f"run `unmask study run FILE --out {folder}` with the file of the study: it is written anew and sound "
            f"shards are kept (`unmask study status --verify {folder}` lists what is damaged)"
        )


def new_manifest(config: Mapping[str, Any], infos: Iterable[Info] = ()) -> Manifest:
    """Return the manifest of a study that starts now, or that adopts shards whose manifest is lost."""
    study, now = to_plain(config), {"fingerprint": code_fingerprint(), "parts": code_parts()}
    codes = dict.fromkeys(info["code"] for info in infos) or {now["fingerprint"]: None}
    return {
        "format": FORMAT,
        "study": study,
        "fingerprint": fingerprint(study),
        "versions": versions(),
        "code": [now if code == now["fingerprint"] else {"fingerprint": code, "parts": {}} for code in codes],
        "tasks": {},
        "models": {},
    }


def write_manifest(files: StoreFiles, manifest: Manifest) -> None:
    """Write the manifest whole or not at all."""
    body = {key: value for key, value in sorted(manifest.items()) if key != "format"}
    files.write(MANIFEST, to_hashed_json(FORMAT, body).encode())


def read_manifest(files: StoreFiles) -> Manifest:
    """Read the manifest; refuse one that is of another format, edited, cut short or gone."""
    try:
        return {"format": FORMAT, **read_body(files, MANIFEST, "manifest")}
    except FileNotFoundError as error:
        raise DamagedManifest(files, "it is not there") from error
    except (OSError, ValueError) as error:
        raise DamagedManifest(files, str(error)) from error


def check_same_study(files: StoreFiles, manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Refuse to go on with another study or other versions."""
    theirs, ours = manifest["study"], to_plain(config)
    if manifest["fingerprint"] != fingerprint(ours):
        changed = sorted(key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key))
        raise OtherStudy(
            f"{str(files.address)!r} holds the study {theirs.get('name')!r} with other settings "
            f"({', '.join(changed)} differ); allowed: the same study, which is then resumed; choose another folder"
        )
    check_versions(files, manifest["versions"])


def check_versions(files: StoreFiles, theirs: Mapping[str, str]) -> None:
    """Refuse results of another unmask or torch."""
    now = versions()
    changed = [
        f"{name} {theirs.get(name)} then, {now[name]} now"
        for name in ("unmask", "torch")
        if theirs.get(name) != now[name]
    ]
    if changed:
        raise OtherStudy(
            f"{str(files.address)!r} was begun with other versions ({'; '.join(changed)}); allowed: the same "
            "ones, or numbers would mix; choose another folder"
        )


def with_code_of_now(files: StoreFiles, manifest: Manifest, *, accept_code: bool) -> Manifest:
    """Return the manifest with the running code in its list; refuse unlisted code unless the user accepts it."""
    if code_fingerprint() in [entry["fingerprint"] for entry in manifest["code"]]:
        return manifest
    old, parts = manifest["code"][-1], code_parts()
    if not accept_code:
        changed = sorted(key for key in {**old["parts"], **parts} if old["parts"].get(key) != parts.get(key))
        raise OtherStudy(
            f"{str(files.address)!r} was made with other code of the same version ({', '.join(changed)} differ; "
            f"fingerprint {old['fingerprint']} then, {code_fingerprint()} now); allowed: the same code, or "
            "numbers might mix; choose another folder, or go on with `--allow-code-change`: manifest "
            "and report then say so"
        )
    return {**manifest, "code": [*manifest["code"], {"fingerprint": code_fingerprint(), "parts": parts}]}


def planned_shards(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return all planned shards of branches by name, each with its model, task, split, block and number of prompts."""
    return {
        name: {"model": model, **about}
        for model, noted in manifest["models"].items()
        for name, about in noted["shards"].items()
    }
