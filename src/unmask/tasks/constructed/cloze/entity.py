"""Entity identity: who owns what, works where, and is what."""

from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.draw import Draw
from unmask.tasks.words import ANIMALS, FIRST, JOBS, SITES, THINGS, distinct, sentence_case

_FACTS = {
    "item": (
        "{s} owns the {v}.",
        "the {v} belongs to {s}.",
        "the owner of the {v} is {s}.",
        "the {v} is the property of {s}.",
        "it is {s} who owns the {v}.",
    ),
    "site": (
        "{s} works at the {v}.",
        "the {v} is where {s} works.",
        "{s} is on duty at the {v}.",
        "whoever comes to the {v} meets {s}, who works there.",
        "the one on duty at the {v} is {s}.",
    ),
    "job": (
        "{s} is the {v}.",
        "the {v} is called {s}.",
        "the name of the {v} is {s}.",
        "everyone knows {s}, the {v}.",
        "they hired {s} as the {v}.",
    ),
}

_REFERENCES = {
    "item": ("the owner of the {v}", "the one who owns the {v}", "whoever owns the {v}"),
    "site": ("the one who works at the {v}", "whoever works at the {v}", "the one on duty at the {v}"),
    "job": ("the {v}",),
    "name": ("{v}",),
}

_PREDICATES = {
    "item": ("owns the {b}", "is the owner of the {b}", "has the {b}"),
    "site": ("works at the {b}", "is on duty at the {b}"),
    "job": ("is the {b}", "has the job of {b}", "is hired as the {b}"),
    "name": ("is called {b}", "goes by the name of {b}", "has the name {b}"),
}

_AGAIN = {
    "item": ("The {b} is not for sale.", "Please handle the {b} with care.", "Nobody else may touch the {b}."),
    "site": ("The {b} is closed on Sundays.", "Deliveries go to the {b}.", "Many visit the {b}."),
    "job": ("Being {b} is hard work.", "A good {b} is hard to find.", "The title on the door is {b}."),
    "name": ("Ask {b} for details.", "Everyone trusts {b}.", "All thanks go to {b}.", "{b} will not mind."),
}

_STATEMENTS = (
    "{ref} {p}.",
    "So {ref} {p}.",
    "As one can work out, {ref} {p}.",
    "It follows that {ref} {p}.",
    "Therefore {ref} {p}.",
)

_PAIRED = (
    "{ref} {p} and {q}.",
    "So {ref} {p} and {q}.",
    "As one can work out, {ref} {p} and {q}.",
    "{ref} {p}; what is more, {ref} {q}.",
    "Clearly {ref} {p}, and {ref} also {q}.",
)


def make(draw: Draw, level: int, blanks: int) -> Clue:
    """Facts about people, and one of them to be recognised by another fact."""
    k = (2, 2, 3, 3)[level - 1]
    belongings = draw.choice((THINGS, THINGS, ANIMALS))
    people = [
        {"name": name, "job": job, "item": item, "site": site}
        for name, job, item, site in zip(
            distinct(draw, FIRST, k),
            distinct(draw, JOBS, k),
            distinct(draw, belongings, k),
            distinct(draw, SITES, k),
            strict=True,
        )
    ]
    # Two attributes besides the name. From level 3 on the job comes between the name and the rest.
    attributes = draw.sample(("item", "site"), 2) if level < 3 else ["job", draw.choice(("item", "site"))]
    if level == 2 and draw.chance(0.5):
        attributes[1] = "job"
    said = []
    for person in people:
        for attribute in attributes:
            subject = person["name"] if level < 3 or attribute == "job" else f"the {person['job']}"
            fact = draw.choice(_FACTS[attribute]).format(s=subject, v=person[attribute])
            said.append(sentence_case(fact))
    cue, *wanted = draw.shuffled(["name", *attributes])
    if level > 2 and cue == "job":  # The middle of the chain would be given away.
        cue, wanted[0] = wanted[0], cue
    wanted = wanted[:blanks]
    if level > 2 and blanks == 1:
        wanted = ["name" if cue != "name" else attributes[1]]
    person = draw.choice(people)
    reference = draw.choice(_REFERENCES[cue]).format(v=person[cue])
    predicates = [draw.choice(_PREDICATES[a]).format(b=f"#{i}") for i, a in enumerate(wanted)]
    if blanks == 1:
        statement = draw.choice(_STATEMENTS).format(ref=reference, p=predicates[0])
    else:
        statement = draw.choice(_PAIRED).format(ref=reference, p=predicates[0], q=predicates[1])
    asked = [sentence_case(statement)]
    if draw.chance(0.7):
        i = draw.below(blanks)
        asked.append(draw.choice(_AGAIN[wanted[i]]).format(b=f"#{i}"))
    return Clue("entity", tuple(said), tuple(asked), tuple(person[a] for a in wanted))
