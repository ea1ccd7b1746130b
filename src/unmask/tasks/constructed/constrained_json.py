"""Constrained JSON Fill: a record whose fields constrain each other.

The prompt gives some fields, the rules and the keys; the answer is the whole object. Each family of records below
returns what is given and what follows from it; the level decides how many rules are in force.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unmask.errors import require
from unmask.tasks.base import Draft, Json
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    CODE_LETTERS,
    COLOURS,
    EVENTS,
    FIRST,
    FOODS,
    GOODS,
    IDEAS,
    JOBS,
    MATERIALS,
    SITES,
    SURNAMES,
    TEAMS,
    clock,
    closing,
    code,
    distinct,
    invented,
    place_name,
    plural,
)

NAME = "constrained-json-fill"
TITLE = "Constrained JSON Fill"
HORIZON = 96
VERSION = "1"
LEVELS = (1, 2, 3, 4)

LIMIT = 150
"""Characters of the answer, so that it fits the horizon in a small vocabulary."""

Object = dict[str, Json]


@dataclass(frozen=True)
class JsonRecord:
    """One record: what the prompt tells, what follows, and how it is told."""

    given: Mapping[str, Json]
    gold: Mapping[str, Json]
    rules: tuple[str, ...]
    prose: str
    """The given fields as a sentence or two, without the rules."""


def _schedule(draw: Draw, level: int) -> JsonRecord:
    event = draw.choice(EVENTS)
    if level <= 2:
        start, duration = draw.between(7, 18), draw.between(1, 5)
        given: Object = {"event": event, "start": start, "duration": duration}
        gold: Object = {"event": event, "start": start, "end": start + duration}
        rules = ["end = start + duration"]
        prose = f"The {event} starts at hour {start} and its duration is {duration} hours."
        if level == 2:
            room = draw.choice(CODE_LETTERS) + str(draw.between(1, 40))
            given["room"] = gold["room"] = room
            prose += f" It is in room {room}."
        return JsonRecord(given, gold, tuple(rules), prose)
    begin, minutes = draw.between(84, 220) * 5, draw.between(5, 40) * 5
    given = {"event": event, "start": clock(begin), "minutes": minutes}
    gold = {"event": event, "start": clock(begin), "end": clock(begin + minutes)}
    rules = ["end = start + minutes, as HH:MM"]
    prose = f"The {event} starts at {clock(begin)} and takes {minutes} minutes."
    if level == 4:
        pause = draw.between(2, 9) * 5
        given["pause"] = pause
        gold["next"] = clock(begin + minutes + pause)
        rules.append("next = end + pause minutes, as HH:MM")
        prose += f" The pause after it lasts {pause} minutes."
    else:
        people, seats = draw.between(5, 95), draw.between(3, 7) * 10
        given["people"] = people
        gold["room"] = "small" if people <= seats else "large"
        rules.append(f'room = "small" for up to {seats} people, else "large"')
        prose += f" There will be {people} people."
    return JsonRecord(given, gold, tuple(rules), prose)


def _travel(draw: Draw, level: int) -> JsonRecord:
    city = place_name(draw)
    nights, price = draw.between(2, 9 if level < 3 else 14), draw.between(30, 99 if level < 3 else 240)
    given: Object = {"city": city, "nights": nights, "price": price}
    gold: Object = {"city": city, "nights": nights, "total": nights * price}
    rules = ["total = nights * price"]
    prose = f"A stay in {city}: {nights} nights at a price of {price} per night."
    if level >= 2:
        day = draw.between(1, 14)
        given["arrive"] = gold["arrive"] = day
        gold["leave"] = day + nights
        rules.append("leave = arrive + nights")
        prose += f" The guests arrive on day {day}."
    if level >= 3:
        tax = draw.between(2, 9)
        given["tax"] = tax
        gold["total"] = nights * (price + tax)
        rules[0] = "total = nights * (price + tax)"
        prose += f" The tax is {tax} per night."
    if level == 4:
        many = draw.between(5, 10)
        gold["long"] = nights >= many
        rules.append(f"long = true if nights >= {many}, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def _invoice(draw: Draw, level: int) -> JsonRecord:
    item = draw.choice(GOODS)
    qty, unit = draw.between(2, 12 if level < 3 else 40), draw.between(3, 25 if level < 3 else 95)
    given: Object = {"item": item, "qty": qty, "unit": unit}
    gold: Object = {"item": item, "qty": qty, "net": qty * unit}
    rules = ["net = qty * unit"]
    prose = f"The invoice lists {qty} pieces of the item '{item}' at a unit price of {unit}."
    if level == 2:
        number = code(draw)
        given["no"] = gold["no"] = number
        prose += f" Its no is {number}."
    if level >= 3:
        post = draw.between(4, 30)
        given["post"] = post
        paid = post
        rules.append("total = net + post")
        prose += f" Post costs {post}."
        if level == 4:
            free = draw.between(3, 20) * 50
            paid = 0 if qty * unit >= free else post
            gold["post"] = paid
            rules[1] = f"post becomes 0 if net >= {free}"
            rules.append("total = net + post")
        gold["total"] = qty * unit + paid
    return JsonRecord(given, gold, tuple(rules), prose)


def _recipe(draw: Draw, level: int) -> JsonRecord:
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


def _loan(draw: Draw, level: int) -> JsonRecord:
    who = draw.choice(FIRST)
    months, rate = draw.between(2, 9 if level < 3 else 36), draw.between(11, 99 if level < 3 else 180)
    repaid = months * rate
    given: Object = {"name": who, "months": months, "rate": rate}
    gold: Object = {"name": who, "months": months, "repaid": repaid}
    rules = ["repaid = months * rate"]
    prose = f"{who} pays a rate of {rate} for {months} months."
    if level >= 2:
        interest = draw.between(5, 60)
        given["loan"] = gold["loan"] = repaid - interest if repaid > interest else repaid
        gold["cost"] = interest if repaid > interest else 0
        rules.append("cost = repaid - loan")
        prose += f" The loan was {given['loan']}."
    if level >= 3:
        limit = draw.between(4, 12) * 100
        gold["large"] = repaid > limit
        rules.append(f"large = true if repaid > {limit}, else false")
    if level == 4:
        first = draw.between(1990, 2030)
        given["year"] = first
        gold["last"] = first + (months - 1) // 12
        rules.append("last = year in which the last monthly rate is paid (the first is paid in January of year)")
        prose += f" The first rate is due in January of the year {first}."
    return JsonRecord(given, gold, tuple(rules), prose)


def _stock(draw: Draw, level: int) -> JsonRecord:
    item = plural(draw.choice(GOODS))
    top = (30, 90, 400, 900)[level - 1]
    opening, received = draw.between(10, top), draw.between(5, top)
    sold = draw.between(1, opening + received)
    closed = opening + received - sold
    given: Object = {"item": item, "stock": opening, "sold": sold}
    gold: Object = {"item": item}
    prose = f"The stock of {item} is {opening}; {sold} are sold."
    if level == 1:
        given["sold"] = sold = draw.between(1, opening)
        prose = f"The stock of {item} is {opening}; {sold} are sold."
        return JsonRecord(given, {**gold, "sold": sold, "left": opening - sold}, ("left = stock - sold",), prose)
    given["added"] = received
    gold |= {"sold": sold, "added": received, "left": closed}
    rules = ["left = stock + added - sold"]
    prose = f"The stock of {item} is {opening}; {received} are added and {sold} sold."
    if level >= 3:
        least = draw.between(10, 300)
        given["least"] = least
        gold["order"] = max(0, least - closed)
        rules.append("order = least - left, but never below 0")
        prose += f" There should be at least {least}."
    if level == 4:
        site = draw.choice(SITES)
        given["place"] = gold["place"] = site
        gold["short"] = closed < least
        rules.append("short = true if left < least, else false")
        prose += f" The place is the {site}."
    return JsonRecord(given, gold, tuple(rules), prose)


def _league(draw: Draw, level: int) -> JsonRecord:
    team = f"{place_name(draw)} {draw.choice(TEAMS)}" if level > 2 else draw.choice(TEAMS)
    won, drawn, lost = draw.between(2, 19), draw.between(2, 9), draw.between(2, 15)
    given: Object = {"team": team, "won": won, "drawn": drawn}
    gold: Object = {"team": team, "points": 3 * won + drawn}
    rules = ["points = 3 * won + drawn"]
    prose = f"The team {team} has won {won} games and drawn {drawn}."
    if level >= 2:
        given["lost"] = lost
        gold["played"] = won + drawn + lost
        rules.append("played = won + drawn + lost")
        prose = f"The team {team} has won {won} games, drawn {drawn} and lost {lost}."
    if level >= 3:
        scored, let_in = draw.between(10, 80), draw.between(10, 80)
        given |= {"scored": scored, "let_in": let_in}
        gold["diff"] = scored - let_in
        rules.append("diff = scored - let_in (may be negative)")
        prose += f" It has scored {scored} goals and let in {let_in} (let_in)."
    if level == 4:
        enough = draw.between(20, 50)
        gold["safe"] = 3 * won + drawn >= enough
        rules.append(f"safe = true from {enough} points on, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def _shipment(draw: Draw, level: int) -> JsonRecord:
    parcel, goods = code(draw), plural(draw.choice(GOODS))
    boxes, each = draw.between(2, 12 if level < 3 else 60), draw.between(3, 20 if level < 3 else 48)
    given: Object = {"id": parcel, "boxes": boxes, "kg_each": each}
    gold: Object = {"id": parcel, "boxes": boxes, "kg": boxes * each}
    rules = ["kg = boxes * kg_each"]
    prose = f"Shipment id {parcel} has {boxes} boxes of {each} kg each (kg_each)."
    if level >= 2:
        given["goods"] = gold["goods"] = goods
        prose += f" The goods are {goods}."
    if level >= 3:
        limit = draw.between(2, 30) * 50
        gold["by"] = "van" if boxes * each <= limit else "truck"
        rules.append(f'by = "van" up to {limit} kg, else "truck"')
    if level == 4:
        sent, days = draw.between(1, 20), draw.between(2, 10)
        given |= {"sent": sent, "days": days}
        gold["due"] = sent + days
        rules.append("due = sent + days")
        prose += f" It is sent on day {sent} and needs {days} days."
    return JsonRecord(given, gold, tuple(rules), prose)


def _exam(draw: Draw, level: int) -> JsonRecord:
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


def _weather(draw: Draw, level: int) -> JsonRecord:
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


def _wages(draw: Draw, level: int) -> JsonRecord:
    who, job = draw.choice(FIRST), draw.choice(JOBS)
    hours = draw.between(30, 60) if level == 4 else draw.between(4, 39)
    rate = draw.between(8, 30 if level < 3 else 48)
    usual = draw.between(35, 45) if level == 4 else hours
    gross = (hours + max(0, hours - usual)) * rate
    given: Object = {"name": who, "hours": hours, "rate": rate}
    gold: Object = {"name": who, "gross": gross}
    rules = ["gross = hours * rate"]
    prose = f"{who} works {hours} hours at a rate of {rate}."
    if level >= 2:
        given["job"] = gold["job"] = job
        prose += f" The job is {job}."
    if level == 4:
        gold["extra"] = max(0, hours - usual)
        rules = [f"extra = hours above {usual}, or 0", "gross = (hours + extra) * rate"]
    if level >= 3:
        tax = draw.between(10, 30 + gross // 4)
        given["tax"] = tax
        gold["net"] = gross - tax
        rules.append("net = gross - tax")
        prose += f" The tax is {tax}."
    return JsonRecord(given, gold, tuple(rules), prose)


def _tickets(draw: Draw, level: int) -> JsonRecord:
    event = draw.choice(EVENTS)
    adults, children = draw.between(2, 9 if level < 3 else 30), draw.between(2, 9 if level < 3 else 30)
    full, half = draw.between(6, 30), draw.between(2, 12)
    given: Object = {"event": event, "adults": adults, "kids": children}
    gold: Object = {"event": event, "people": adults + children}
    rules = ["people = adults + kids"]
    prose = f"At the {event} there are {adults} adults and {children} kids."
    if level >= 2:
        given |= {"adult": full, "kid": half}
        gold["cost"] = adults * full + children * half
        rules.append("cost = adults * adult + kids * kid")
        prose += f" An adult pays {full}, a kid {half}."
    if level >= 3:
        paid = draw.between(1, 40) * 5 + adults * full + children * half
        given["paid"] = paid
        gold["change"] = paid - adults * full - children * half
        rules.append("change = paid - cost")
        prose += f" They have paid {paid}."
    if level == 4:
        many = draw.between(15, 45)
        gold["group"] = adults + children >= many
        rules.append(f"group = true from {many} people on, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def _floor(draw: Draw, level: int) -> JsonRecord:
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


def _library(draw: Draw, level: int) -> JsonRecord:
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


def _savings(draw: Draw, level: int) -> JsonRecord:
    who = draw.choice(FIRST)
    weeks, weekly = draw.between(2, 9 if level < 3 else 52), draw.between(3, 30)
    start, goal = draw.between(5, 200), draw.between(3, 20) * 50
    given: Object = {"owner": who, "weeks": weeks, "weekly": weekly}
    saved = weeks * weekly
    gold: Object = {"owner": who, "saved": saved}
    rules = ["saved = weeks * weekly"]
    prose = f"The owner is {who}, who puts aside {weekly} (weekly) for {weeks} weeks."
    if level >= 2:
        given["start"] = start
        saved += start
        gold["saved"] = saved
        rules = ["saved = start + weeks * weekly"]
        prose += f" The start was {start}."
    if level >= 3:
        aim = draw.choice(GOODS)
        given |= {"aim": aim, "goal": goal}
        gold |= {"aim": aim, "reached": saved >= goal}
        rules.append("reached = true if saved >= goal, else false")
        prose += f" The aim is '{aim}', and the goal {goal}."
    if level == 4:
        gold["missing"] = max(0, goal - saved)
        rules.append("missing = goal - saved, or 0 if reached")
    return JsonRecord(given, gold, tuple(rules), prose)


def _election(draw: Draw, level: int) -> JsonRecord:
    names = distinct(draw, SURNAMES, 2 if level < 3 else 3)
    votes = draw.sample(range(11, 99 if level < 3 else 480), len(names))
    order = sorted(zip(votes, names, strict=True), reverse=True)
    given: Object = dict(zip(names, votes, strict=True))
    gold: Object = {"winner": order[0][1], "total": sum(votes)}
    rules = ["winner = name with most votes", "total = all votes added"]
    told = [f"{name} got {n} votes" for name, n in zip(names, votes, strict=True)]
    prose = f"In the election, {', '.join(told)}."
    if level >= 2:
        gold["lead"] = order[0][0] - order[1][0]
        rules.append("lead = votes of the winner minus votes of the second")
    if level >= 3:
        gold["second"] = order[1][1]
        rules.append("second = name with the second most votes")
    if level == 4:
        gold["half"] = 2 * order[0][0] > sum(votes)
        rules.append("half = true if the winner has more than half of total, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def _account(draw: Draw, level: int) -> JsonRecord:
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


def _crew(draw: Draw, level: int) -> JsonRecord:
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


def _trip(draw: Draw, level: int) -> JsonRecord:
    a, b = distinct(draw, place_name, 2)
    hours, speed = draw.between(2, 9), draw.between(2, 9) * 10 if level < 3 else draw.between(31, 99)
    given: Object = {"from": a, "to": b, "hours": hours, "speed": speed}
    gold: Object = {"from": a, "to": b, "km": hours * speed}
    rules = ["km = hours * speed"]
    prose = f"The trip goes from {a} to {b}: {hours} hours at a speed of {speed}."
    if level >= 2:
        leave = draw.between(5, 12)
        given["leave"] = leave
        gold["arrive"] = leave + hours
        rules.append("arrive = leave + hours")
        prose += f" They leave at {leave}."
    if level >= 3:
        cents = draw.between(2, 9)
        given["cents"] = cents
        gold["toll"] = hours * speed * cents
        rules.append("toll = km * cents")
        prose += f" The road costs {cents} cents per km."
    if level == 4:
        latest = draw.between(9, 19)
        gold["late"] = leave + hours > latest
        rules.append(f"late = true if arrive > {latest}, else false")
    return JsonRecord(given, gold, tuple(rules), prose)


def _auction(draw: Draw, level: int) -> JsonRecord:
    lot = f"{draw.choice(COLOURS)} {draw.choice(GOODS)}"
    names = distinct(draw, FIRST, (2, 2, 3, 4)[level - 1])
    bids = draw.sample(range(20, 99 if level < 3 else 900), len(names))
    given: Object = {"lot": lot, **dict(zip(names, bids, strict=True))}
    top = max(bids)
    gold: Object = {"lot": lot, "buyer": names[bids.index(top)], "price": top}
    rules = ["buyer = name with the highest bid", "price = that bid"]
    told = [f"{name} bids {bid}" for name, bid in zip(names, bids, strict=True)]
    prose = f"The lot is called '{lot}'. {', '.join(told)}."
    if level >= 2:
        fee = draw.between(3, 40)
        given["fee"] = fee
        gold["pays"] = top + fee
        rules.append("pays = price + fee")
        prose += f" The fee is {fee}."
    if level >= 3:
        gold["bids"] = len(bids)
        rules.append("bids = number of bids")
    if level == 4:
        ask = draw.between(20, 900)
        given["ask"] = ask
        gold["sold"] = top >= ask
        rules.append("sold = true if price >= ask, else false")
        prose += f" The seller wants {ask} (ask)."
    return JsonRecord(given, gold, tuple(rules), prose)


FAMILIES: dict[str, Callable[[Draw, int], JsonRecord]] = {
    "schedule": _schedule,
    "travel": _travel,
    "invoice": _invoice,
    "recipe": _recipe,
    "loan": _loan,
    "stock": _stock,
    "league": _league,
    "shipment": _shipment,
    "exam": _exam,
    "weather": _weather,
    "wages": _wages,
    "tickets": _tickets,
    "floor": _floor,
    "library": _library,
    "savings": _savings,
    "election": _election,
    "account": _account,
    "crew": _crew,
    "trip": _trip,
    "auction": _auction,
}

_FRAMES = (
    "Input: {given}\nRules: {rules}\nOutput a JSON object with the keys {keys}.",
    "{given}\nComplete the record so that {rules}. Keys: {keys}.",
    "Fill a JSON object with the keys {keys}.\nGiven: {given}\nIt must hold that {rules}.",
    "Data: {given}\nConstraints: {rules}\nWrite the whole record as JSON with {keys}, in this order.",
    "Make one JSON object. Keys: {keys}\nKnown: {given}\nConditions: {rules}",
    "{given}\nFields to return: {keys}\nHow they depend on each other: {rules}",
    "A form was filled in halfway: {given}\nThe rest follows: {rules}\nReturn {keys} as JSON.",
    "Build the JSON record with {keys} from\n{given}\nwhere {rules}.",
    "Record ({family}): {given}\nSchema keys: {keys}\nRule: {rules}",
    "Known facts: {given}\nDerive the rest: {rules}\nGive every one of the keys {keys} in one JSON object.",
    "Convert to JSON ({keys}).\n{given}\nRemember: {rules}.",
    "The {family} table needs one more row with {keys}.\nRow data: {given}\nChecks: {rules}",
)

_WHAT = (
    "the JSON object on one line",
    "the complete JSON object",
    "only the JSON object",
    "the object as compact JSON",
    "one JSON object",
)


def compact(value: Json) -> str:
    """JSON without spaces, keys in the order of the prompt."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _told(draw: Draw, record: JsonRecord) -> str:
    """The given fields: as assignments, as lines, as JSON, or as prose."""
    pairs = [(key, _shown(value)) for key, value in record.given.items()]
    style = draw.below(6)
    if style == 0:
        return "; ".join(f"{key}={value}" for key, value in pairs)
    if style == 1:
        return ", ".join(f"{key}: {value}" for key, value in draw.shuffled(pairs))
    if style == 2:
        return "\n" + "\n".join(f"{key} = {value}" for key, value in pairs)
    if style == 3:
        return compact(dict(record.given))
    return record.prose


def generate(draw: Draw, level: int) -> Draft:
    """One example of the given level."""
    require(level in LEVELS, "level", level, "1 to 4", "choose one of them")
    family = draw.choice(list(FAMILIES))
    record = FAMILIES[family](draw, level)
    while len(compact(record.gold)) > LIMIT:
        record = FAMILIES[family](draw, level)
    at = draw.below(len(_FRAMES))
    task = _FRAMES[at].format(
        given=_told(draw, record), rules="; ".join(record.rules), keys=", ".join(record.gold), family=family
    )
    task = task.replace(": \n", ":\n").replace("\n\n", "\n").replace("..", ".").strip()
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}"
    parts = tuple(f"{key}={compact(value)}" for key, value in record.gold.items())
    constraints: Object = {
        "family": family,
        "frame": str(at),
        "rules": list(record.rules),
        "given": dict(record.given),
        "object": dict(record.gold),
    }
    return Draft(prompt, compact(record.gold), parts, constraints, level)
