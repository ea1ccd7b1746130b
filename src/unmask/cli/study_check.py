"""`unmask study check`: whether a store's files are still what was written."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from unmask.cli.options import Json
from unmask.report.console import say


def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `unmask study run` was given as --out.")],
    json_: Json = False,
) -> None:
    """Verify every file of a study: bytes, values, names and the manifest. Ends with 1 if something is damaged or gone.

    Nothing is changed. `unmask study run` with the same --out sets what is damaged aside and measures it again.

    \b
    Example:
      unmask study check out/study
    """
    from unmask.lab.store import DamagedManifest, Store

    store = Store(folder)
    damage = store.check()
    damaged = {one.name for one in damage}
    shards, decodes, planned, codes = 0, 0, None, Counter[str]()
    try:
        planned = sum(len(model["shards"]) for model in store.manifest["models"].values())
        shards, decodes = (len(set(store.names(kind)) - damaged) for kind in ("branches", "decodes"))
        if not damage:
            codes = Counter(info["code"] for kind in ("branches", "decodes") for info in store.infos(kind).values())
    except DamagedManifest:
        pass  # Among the damage already.
    result = {"folder": str(store.folder), "shards": shards, "units": decodes, "planned": planned}
    if json_:
        result |= {"sound": not damage, "damaged": [asdict(one) for one in damage], "code": codes}
        say(json.dumps(result, indent=2))
    else:
        say(f"{store.folder}: {'damaged' if damage else 'sound'}")
        if planned is not None:
            say(f"  {shards} of {planned} planned shards and {decodes} decoded units are there and sound")
        for one in damage:
            say(f"  damaged: {one.name}: {one.reason}; {one.redo}")
        if len(codes) > 1:
            for code, count in codes.items():
                say(f"  made with code {code}: {count} shards and units")
        if damage:
            say(f"`unmask study run FILE --out {store.folder}` sets what is damaged aside and measures it again")
    if damage:
        raise typer.Exit(1)
