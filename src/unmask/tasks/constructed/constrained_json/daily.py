"""Records of people, rooms and the rest of daily life."""

from unmask.tasks.constructed.constrained_json.record import JsonRecord, Object
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    FIRST,
    FOODS,
    IDEAS,
    JOBS,
    MATERIALS,
    SITES,
    SURNAMES,
    distinct,
    invented,
    place_name,
)


def recipe(draw: Draw, level: int) -> JsonRecord:
    """Amounts for more guests than a recipe serves."""
    dish = draw.choice(FOODS)
    factor, base = draw.between(2, 5 if level < 3 else 9), draw.between(2, 6)
    flour, sugar = draw.between(3, 9) * (5 if level < 3 else 15), draw.between(2, 9) * 5
    given: Object = {"dish": dish, "serves": base, "guests": base * factor, "flour": flour}
    gold: Object = {"dish": dish, "guests": base * factor, "flour": flour * factor}
    scaled = "flour is"
    prose = f"The recipe '{dish}' serves {base} with {flour} g of flour. There are {base * factor} guests."
    if level >= 2:
        given["sugar"], gold["sugar"] = sugar, sugar * factor
        scaled = "flour and sugar are"
        prose = prose.replace("of flour", f"of flour and {sugar} g of sugar")
    rules = [f"{scaled} multiplied by guests / serves"]
    if level >= 3:
        eggs = draw.between(2, 6)
        given["eggs"], gold["eggs"] = eggs, eggs * factor
        rules = ["flour, sugar and eggs are multiplied by guests / serves"]
        prose += f" The recipe asks for {eggs} eggs."
    if level == 4:
        gold["grams"] = (flour + sugar) * factor
        rules.append("grams = new flour + new sugar")
    return JsonRecord(given, gold, tuple(rules), prose)


def exam(draw: Draw, level: int) -> JsonRecord:
    """Marks, their sum, and whether it is enough."""
    pupil = draw.choice(FIRST)
    marks = [draw.between(20, 99) if level > 1 else draw.between(1, 20) for _ in range((2, 3, 3, 4)[level - 1])]
    given: Object = {"pupil": pupil, "marks": marks}
    gold: Object = {"pupil": pupil, "sum": sum(marks)}
    rules = ["sum = all marks added"]
    prose = f"The pupil {pupil} has the marks {', '.join(map(str, marks))}."
    if level >= 2:
        gold["best"] = max(marks)
        rules.append("best = highest mark")
    if level >= 3:
        need = draw.between(15, 25) * 10
        given["need"] = need
        gold["passed"] = sum(marks) >= need
        rules.append("passed = true if sum >= need, else false")
        prose += f" The marks must sum to {need} (need)."
    if level == 4:
        subject = draw.choice(IDEAS)
        given["topic"] = gold["topic"] = subject
        gold["worst"] = min(marks)
        rules.append("worst = lowest mark")
        prose += f" The topic is {subject}."
    return JsonRecord(given, gold, tuple(rules), prose)


def weather(draw: Draw, level: int) -> JsonRecord:
    """Temperatures, the highest and the lowest."""
    town = place_name(draw)
    low = 1 if level < 3 else -15
    temps = draw.sample(range(low, 35), (2, 3, 5, 6)[level - 1])
    given: Object = {"town": town, "temps": temps}
    gold: Object = {"town": town, "max": max(temps), "min": min(temps)}
    rules = ["max and min are the highest and the lowest of temps"]
    prose = f"The temps measured in {town} were {', '.join(map(str, temps))}."
    if level >= 2:
        gold["range"] = max(temps) - min(temps)
        rules.append("range = max - min")
    if level >= 3:
        gold["frost"] = min(temps) < 0
        rules.append("frost = true if min < 0, else false")
    if level == 4:
        gold["last"] = temps[-1]
        rules.append("last = the last of temps")
    return JsonRecord(given, gold, tuple(rules), prose)


def floor(draw: Draw, level: int) -> JsonRecord:
    """The area of a room, and what its floor costs."""
    site, stuff = draw.choice(SITES), draw.choice(MATERIALS)
    length, width = draw.between(3, 12 if level < 3 else 48), draw.between(2, 12 if level < 3 else 35)
    if level == 4 and draw.chance(0.4):
        width = length
    given: Object = {"room": site, "length": length, "width": width}
    gold: Object = {"room": site, "area": length * width}
    rules = ["area = length * width"]
    prose = f"The room is the {site}, with length {length} and width {width}."
    if level >= 2:
        gold["edge"] = 2 * (length + width)
        rules.append("edge = 2 * (length + width)")
    if level >= 3:
        price = draw.between(2, 9)
        given |= {"tile": stuff, "price": price}
        gold |= {"tile": stuff, "cost": length * width * price}
        rules.append("cost = area * price")
        prose += f" The tile is {stuff} at a price of {price}."
    if level == 4:
        gold["square"] = length == width
        rules.append("square = true if length equals width, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def library(draw: Draw, level: int) -> JsonRecord:
    """When a book is due, and the fine for being late."""
    book = f"The {draw.choice(ADJECTIVES).capitalize()} {draw.choice((*ANIMALS, *JOBS)).capitalize()}"
    day, loan = draw.between(1, 60 if level < 3 else 200), draw.between(2, 9) * 7
    given: Object = {"book": book, "day": day, "loan": loan}
    gold: Object = {"book": book, "due": day + loan}
    rules = ["due = day + loan"]
    prose = f"The book '{book}' is borrowed on day {day}; the loan is {loan} days."
    if level == 2:
        reader = draw.choice(FIRST)
        given["reader"] = gold["reader"] = reader
        prose += f" The reader is {reader}."
    if level >= 3:
        late = draw.between(0, 15)
        given["back"] = day + loan + late
        gold["late"] = late
        rules.append("late = back - due")
        prose += f" It is back on day {day + loan + late}."
    if level == 4:
        fee = draw.between(2, 25)
        given["fee"] = fee
        gold["fine"] = late * fee
        rules.append("fine = late * fee")
        prose += f" The fee is {fee}."
    return JsonRecord(given, gold, tuple(rules), prose)


def account(draw: Draw, level: int) -> JsonRecord:
    """A login and an address made from a name."""
    first, last = draw.choice(FIRST), draw.choice(SURNAMES)
    number = draw.between(2, 99)
    given: Object = {"first": first, "last": last}
    gold: Object = {"name": f"{first} {last}", "login": f"{first[0]}{last}".lower()}
    rules = ["name = first, a space, last", "login = first letter of first, then last, in lower case"]
    prose = f"The first name (first) is {first} and the surname (last) is {last}."
    if level >= 2:
        given["no"] = number
        gold["login"] = f"{first[0]}{last}{number}".lower()
        rules[1] = "login = first letter of first, then last, in lower case, then no"
        prose += f" The no is {number}."
    if level >= 3:
        gold["initials"] = f"{first[0]}{last[0]}"
        rules.append("initials = the two first letters, no dots")
    if level == 4:
        host = invented(draw)
        given["host"] = host
        gold["mail"] = f"{last.lower()}@{host}.org"
        rules.append("mail = last in lower case, @, host, .org")
        prose += f" The host is {host}."
    return JsonRecord(given, gold, tuple(rules), prose)


def crew(draw: Draw, level: int) -> JsonRecord:
    """People and their ages."""
    names = distinct(draw, FIRST, (2, 3, 4, 5)[level - 1])
    ages = draw.sample(range(18, 70), len(names))
    given: Object = dict(zip(names, ages, strict=True))
    oldest = names[ages.index(max(ages))]
    gold: Object = {"oldest": oldest, "crew": sorted(names)}
    rules = ["oldest = name of the oldest person", "crew = list of the people in alphabetical order"]
    prose = "Ages: " + ", ".join(f"{name} is {age}" for name, age in zip(names, ages, strict=True)) + "."
    if level >= 2:
        ship = invented(draw).capitalize()
        given["ship"] = gold["ship"] = ship
        prose += f" The ship is called {ship}."
    if level >= 3:
        gold["gap"] = max(ages) - min(ages)
        rules.append("gap = highest age minus lowest age")
    return JsonRecord(given, gold, tuple(rules), prose)
