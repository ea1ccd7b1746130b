"""Constrained JSON Fill: a record whose fields constrain each other.

The prompt gives some fields, the rules and the keys; the answer is the whole object. Each family of records says what
is given and what follows from it; the level decides how many rules are in force. The order of draws and of every list
below is part of each prompt, and so of the version.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw, Json
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer

LIMIT = 150
"""Longest answer, in characters, so that it fits the tokens of the task in a small vocabulary."""

Object = dict[str, Json]


@dataclass
class Record:
    """Content of one prompt: the given fields, as values and as prose, the rules, and the object to fill in."""

    given: Object
    gold: Object
    rules: list[str]
    prose: str

    def add(self, given: Object | None = None, gold: Object | None = None, rule: str = "", prose: str = "") -> None:
        """Add given fields, fields of the object, a rule and a sentence. An existing field keeps its place."""
        self.given |= given or {}
        self.gold |= gold or {}
        self.rules += [rule] if rule else []
        self.prose += f" {prose}" if prose else ""


def _write_name_number_pairs(names: Sequence[str], numbers: Sequence[int], verb: str, unit: str = "") -> str:
    return ", ".join(f"{name} {verb} {number}{unit}" for name, number in zip(names, numbers, strict=True))


# Journeys and events


def _make_schedule_record(draw: Draw, level: int) -> Record:
    """Make a record that asks when an event ends, and which room it takes."""
    event = draw.choice(w.EVENTS)
    if level <= 2:
        start, duration = draw.integer(7, 18), draw.integer(1, 5)
        record = Record(
            {"event": event, "start": start, "duration": duration},
            {"event": event, "start": start, "end": start + duration},
            ["end = start + duration"],
            f"The {event} starts at hour {start} and its duration is {duration} hours.",
        )
        if level == 2:
            room = draw.choice(w.CODE_LETTERS) + str(draw.integer(1, 40))
            record.add({"room": room}, {"room": room}, prose=f"It is in room {room}.")
        return record
    begin, minutes = draw.integer(84, 220) * 5, draw.integer(5, 40) * 5
    record = Record(
        {"event": event, "start": w.clock_time(begin), "minutes": minutes},
        {"event": event, "start": w.clock_time(begin), "end": w.clock_time(begin + minutes)},
        ["end = start + minutes, as HH:MM"],
        f"The {event} starts at {w.clock_time(begin)} and takes {minutes} minutes.",
    )
    if level == 4:
        pause = draw.integer(2, 9) * 5
        record.add(
            {"pause": pause},
            {"next": w.clock_time(begin + minutes + pause)},
            "next = end + pause minutes, as HH:MM",
            f"The pause after it lasts {pause} minutes.",
        )
    else:
        people, seats = draw.integer(5, 95), draw.integer(3, 7) * 10
        record.add(
            {"people": people},
            {"room": "small" if people <= seats else "large"},
            f'room = "small" for up to {seats} people, else "large"',
            f"There will be {people} people.",
        )
    return record


def _make_travel_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the price of some nights, and the day of leaving."""
    city = w.draw_place_name(draw)
    nights, price = draw.integer(2, 9 if level < 3 else 14), draw.integer(30, 99 if level < 3 else 240)
    record = Record(
        {"city": city, "nights": nights, "price": price},
        {"city": city, "nights": nights, "total": nights * price},
        ["total = nights * price"],
        f"A stay in {city}: {nights} nights at a price of {price} per night.",
    )
    if level >= 2:
        day = draw.integer(1, 14)
        gold: Object = {"arrive": day, "leave": day + nights}
        record.add({"arrive": day}, gold, "leave = arrive + nights", f"The guests arrive on day {day}.")
    if level >= 3:
        tax = draw.integer(2, 9)
        record.add({"tax": tax}, {"total": nights * (price + tax)}, prose=f"The tax is {tax} per night.")
        record.rules[0] = "total = nights * (price + tax)"
    if level == 4:
        many = draw.integer(5, 10)
        record.add({}, {"long": nights >= many}, f"long = true if nights >= {many}, else false")
    return record


def _make_tickets_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the price of tickets at two prices, and the change."""
    event = draw.choice(w.EVENTS)
    adults, children = draw.integer(2, 9 if level < 3 else 30), draw.integer(2, 9 if level < 3 else 30)
    full, half = draw.integer(6, 30), draw.integer(2, 12)
    cost = adults * full + children * half
    record = Record(
        {"event": event, "adults": adults, "kids": children},
        {"event": event, "people": adults + children},
        ["people = adults + kids"],
        f"At the {event} there are {adults} adults and {children} kids.",
    )
    if level >= 2:
        given: Object = {"adult": full, "kid": half}
        record.add(given, {"cost": cost}, "cost = adults * adult + kids * kid", f"An adult pays {full}, a kid {half}.")
    if level >= 3:
        paid = draw.integer(1, 40) * 5 + cost
        record.add({"paid": paid}, {"change": paid - cost}, "change = paid - cost", f"They have paid {paid}.")
    if level == 4:
        many = draw.integer(15, 45)
        record.add({}, {"group": adults + children >= many}, f"group = true from {many} people on, else false")
    return record


def _make_trip_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the length of a trip, and the hour of arrival."""
    a, b = w.pick_distinct(draw, w.draw_place_name, 2)
    hours, speed = draw.integer(2, 9), draw.integer(2, 9) * 10 if level < 3 else draw.integer(31, 99)
    record = Record(
        {"from": a, "to": b, "hours": hours, "speed": speed},
        {"from": a, "to": b, "km": hours * speed},
        ["km = hours * speed"],
        f"The trip goes from {a} to {b}: {hours} hours at a speed of {speed}.",
    )
    leave = 0
    if level >= 2:
        leave = draw.integer(5, 12)
        record.add({"leave": leave}, {"arrive": leave + hours}, "arrive = leave + hours", f"They leave at {leave}.")
    if level >= 3:
        cents = draw.integer(2, 9)
        toll = hours * speed * cents
        record.add({"cents": cents}, {"toll": toll}, "toll = km * cents", f"The road costs {cents} cents per km.")
    if level == 4:
        latest = draw.integer(9, 19)
        record.add({}, {"late": leave + hours > latest}, f"late = true if arrive > {latest}, else false")
    return record


def _make_league_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the points of a team by its games won and drawn."""
    team = f"{w.draw_place_name(draw)} {draw.choice(w.TEAMS)}" if level > 2 else draw.choice(w.TEAMS)
    won, drawn, lost = draw.integer(2, 19), draw.integer(2, 9), draw.integer(2, 15)
    points = 3 * won + drawn
    record = Record(
        {"team": team, "won": won, "drawn": drawn},
        {"team": team, "points": points},
        ["points = 3 * won + drawn"],
        f"The team {team} has won {won} games and drawn {drawn}.",
    )
    if level >= 2:
        record.add({"lost": lost}, {"played": won + drawn + lost}, "played = won + drawn + lost")
        record.prose = f"The team {team} has won {won} games, drawn {drawn} and lost {lost}."
    if level >= 3:
        scored, let_in = draw.integer(10, 80), draw.integer(10, 80)
        record.add(
            {"scored": scored, "let_in": let_in},
            {"diff": scored - let_in},
            "diff = scored - let_in (may be negative)",
            f"It has scored {scored} goals and let in {let_in} (let_in).",
        )
    if level == 4:
        enough = draw.integer(20, 50)
        record.add({}, {"safe": points >= enough}, f"safe = true from {enough} points on, else false")
    return record


def _make_election_record(draw: Draw, level: int) -> Record:
    """Make a record that asks who wins a vote, and by how many."""
    names = w.pick_distinct(draw, w.SURNAMES, 2 if level < 3 else 3)
    votes = draw.sample(range(11, 99 if level < 3 else 480), len(names))
    (most, winner), (next_most, second), *_ = sorted(zip(votes, names, strict=True), reverse=True)
    record = Record(
        dict(zip(names, votes, strict=True)),
        {"winner": winner, "total": sum(votes)},
        ["winner = name with most votes", "total = all votes added"],
        f"In the election, {_write_name_number_pairs(names, votes, 'got', ' votes')}.",
    )
    if level >= 2:
        record.add({}, {"lead": most - next_most}, "lead = votes of the winner minus votes of the second")
    if level >= 3:
        record.add({}, {"second": second}, "second = name with the second most votes")
    if level == 4:
        half = 2 * most > sum(votes)
        record.add({}, {"half": half}, "half = true if the winner has more than half of total, else false")
    return record


# Daily life


def _make_recipe_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the amounts of a recipe for more guests than it serves."""
    dish = draw.choice(w.FOODS)
    factor, base = draw.integer(2, 5 if level < 3 else 9), draw.integer(2, 6)
    flour, sugar = draw.integer(3, 9) * (5 if level < 3 else 15), draw.integer(2, 9) * 5
    guests = base * factor
    amounts = f"{flour} g of flour" if level == 1 else f"{flour} g of flour and {sugar} g of sugar"
    scaled = ("flour is", "flour and sugar are", "flour, sugar and eggs are", "flour, sugar and eggs are")[level - 1]
    record = Record(
        {"dish": dish, "serves": base, "guests": guests, "flour": flour},
        {"dish": dish, "guests": guests, "flour": flour * factor},
        [f"{scaled} multiplied by guests / serves"],
        f"The recipe '{dish}' serves {base} with {amounts}. There are {guests} guests.",
    )
    if level >= 2:
        record.add({"sugar": sugar}, {"sugar": sugar * factor})
    if level >= 3:
        eggs = draw.integer(2, 6)
        record.add({"eggs": eggs}, {"eggs": eggs * factor}, prose=f"The recipe asks for {eggs} eggs.")
    if level == 4:
        record.add({}, {"grams": (flour + sugar) * factor}, "grams = new flour + new sugar")
    return record


def _make_exam_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the sum of marks, and whether it is enough."""
    pupil = draw.choice(w.FIRST)
    marks = [draw.integer(20, 99) if level > 1 else draw.integer(1, 20) for _ in range((2, 3, 3, 4)[level - 1])]
    record = Record(
        {"pupil": pupil, "marks": marks},
        {"pupil": pupil, "sum": sum(marks)},
        ["sum = all marks added"],
        f"The pupil {pupil} has the marks {', '.join(map(str, marks))}.",
    )
    if level >= 2:
        record.add({}, {"best": max(marks)}, "best = highest mark")
    if level >= 3:
        need = draw.integer(15, 25) * 10
        rule = "passed = true if sum >= need, else false"
        record.add({"need": need}, {"passed": sum(marks) >= need}, rule, f"The marks must sum to {need} (need).")
    if level == 4:
        topic = draw.choice(w.IDEAS)
        gold: Object = {"topic": topic, "worst": min(marks)}
        record.add({"topic": topic}, gold, "worst = lowest mark", f"The topic is {topic}.")
    return record


def _make_weather_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the highest and the lowest of some temperatures."""
    town = w.draw_place_name(draw)
    low = 1 if level < 3 else -15
    temps = draw.sample(range(low, 35), (2, 3, 5, 6)[level - 1])
    record = Record(
        {"town": town, "temps": temps},
        {"town": town, "max": max(temps), "min": min(temps)},
        ["max and min are the highest and the lowest of temps"],
        f"The temps measured in {town} were {', '.join(map(str, temps))}.",
    )
    if level >= 2:
        record.add({}, {"range": max(temps) - min(temps)}, "range = max - min")
    if level >= 3:
        record.add({}, {"frost": min(temps) < 0}, "frost = true if min < 0, else false")
    if level == 4:
        record.add({}, {"last": temps[-1]}, "last = the last of temps")
    return record


def _make_floor_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the area of a room, and the price of its floor."""
    site, material = draw.choice(w.SITES), draw.choice(w.MATERIALS)
    length, width = draw.integer(3, 12 if level < 3 else 48), draw.integer(2, 12 if level < 3 else 35)
    if level == 4 and draw.chance(0.4):
        width = length
    record = Record(
        {"room": site, "length": length, "width": width},
        {"room": site, "area": length * width},
        ["area = length * width"],
        f"The room is the {site}, with length {length} and width {width}.",
    )
    if level >= 2:
        record.add({}, {"edge": 2 * (length + width)}, "edge = 2 * (length + width)")
    if level >= 3:
        price = draw.integer(2, 9)
        record.add(
            {"tile": material, "price": price},
            {"tile": material, "cost": length * width * price},
            "cost = area * price",
            f"The tile is {material} at a price of {price}.",
        )
    if level == 4:
        record.add({}, {"square": length == width}, "square = true if length equals width, else false")
    return record


def _make_library_record(draw: Draw, level: int) -> Record:
    """Make a record that asks when a book is due, and for the fine for being late."""
    book = f"The {draw.choice(w.ADJECTIVES).capitalize()} {draw.choice((*w.ANIMALS, *w.JOBS)).capitalize()}"
    day, loan = draw.integer(1, 60 if level < 3 else 200), draw.integer(2, 9) * 7
    record = Record(
        {"book": book, "day": day, "loan": loan},
        {"book": book, "due": day + loan},
        ["due = day + loan"],
        f"The book '{book}' is borrowed on day {day}; the loan is {loan} days.",
    )
    if level == 2:
        reader = draw.choice(w.FIRST)
        record.add({"reader": reader}, {"reader": reader}, prose=f"The reader is {reader}.")
    if level >= 3:
        late = draw.integer(0, 15)
        back = day + loan + late
        record.add({"back": back}, {"late": late}, "late = back - due", f"It is back on day {back}.")
        if level == 4:
            fee = draw.integer(2, 25)
            record.add({"fee": fee}, {"fine": late * fee}, "fine = late * fee", f"The fee is {fee}.")
    return record


def _make_account_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the login and the address that are made from a name."""
    first, last = draw.choice(w.FIRST), draw.choice(w.SURNAMES)
    number = draw.integer(2, 99)
    record = Record(
        {"first": first, "last": last},
        {"name": f"{first} {last}", "login": f"{first[0]}{last}".lower()},
        ["name = first, a space, last", "login = first letter of first, then last, in lower case"],
        f"The first name (first) is {first} and the surname (last) is {last}.",
    )
    if level >= 2:
        record.add({"no": number}, {"login": f"{first[0]}{last}{number}".lower()}, prose=f"The no is {number}.")
        record.rules[1] = "login = first letter of first, then last, in lower case, then no"
    if level >= 3:
        record.add({}, {"initials": f"{first[0]}{last[0]}"}, "initials = the two first letters, no dots")
    if level == 4:
        host = w.invent_word(draw)
        mail = f"{last.lower()}@{host}.org"
        record.add({"host": host}, {"mail": mail}, "mail = last in lower case, @, host, .org", f"The host is {host}.")
    return record


def _make_crew_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the oldest of a crew, and for its names in order."""
    names = w.pick_distinct(draw, w.FIRST, (2, 3, 4, 5)[level - 1])
    ages = draw.sample(range(18, 70), len(names))
    record = Record(
        dict(zip(names, ages, strict=True)),
        {"oldest": names[ages.index(max(ages))], "crew": sorted(names)},
        ["oldest = name of the oldest person", "crew = list of the people in alphabetical order"],
        f"Ages: {_write_name_number_pairs(names, ages, 'is')}.",
    )
    if level >= 2:
        ship = w.invent_name(draw)
        record.add({"ship": ship}, {"ship": ship}, prose=f"The ship is called {ship}.")
    if level >= 3:
        record.add({}, {"gap": max(ages) - min(ages)}, "gap = highest age minus lowest age")
    return record


# Money and goods


def _make_invoice_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the price of some pieces with postage."""
    item = draw.choice(w.GOODS)
    qty, unit = draw.integer(2, 12 if level < 3 else 40), draw.integer(3, 25 if level < 3 else 95)
    net = qty * unit
    record = Record(
        {"item": item, "qty": qty, "unit": unit},
        {"item": item, "qty": qty, "net": net},
        ["net = qty * unit"],
        f"The invoice lists {qty} pieces of the item '{item}' at a unit price of {unit}.",
    )
    if level == 2:
        number = w.draw_item_code(draw)
        record.add({"no": number}, {"no": number}, prose=f"Its no is {number}.")
    if level >= 3:
        post = draw.integer(4, 30)
        record.add({"post": post}, prose=f"Post costs {post}.")
        if level == 4:
            free = draw.integer(3, 20) * 50
            post = 0 if net >= free else post
            record.add({}, {"post": post}, f"post becomes 0 if net >= {free}")
        record.add({}, {"total": net + post}, "total = net + post")
    return record


def _make_loan_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the sum of monthly rates, and the cost of a loan."""
    name = draw.choice(w.FIRST)
    months, rate = draw.integer(2, 9 if level < 3 else 36), draw.integer(11, 99 if level < 3 else 180)
    repaid = months * rate
    record = Record(
        {"name": name, "months": months, "rate": rate},
        {"name": name, "months": months, "repaid": repaid},
        ["repaid = months * rate"],
        f"{name} pays a rate of {rate} for {months} months.",
    )
    if level >= 2:
        interest = draw.integer(5, 60)
        cost = interest if repaid > interest else 0
        loan = repaid - cost
        record.add({"loan": loan}, {"loan": loan, "cost": cost}, "cost = repaid - loan", f"The loan was {loan}.")
    if level >= 3:
        limit = draw.integer(4, 12) * 100
        record.add({}, {"large": repaid > limit}, f"large = true if repaid > {limit}, else false")
    if level == 4:
        year = draw.integer(1990, 2030)
        record.add(
            {"year": year},
            {"last": year + (months - 1) // 12},
            "last = year in which the last monthly rate is paid (the first is paid in January of year)",
            f"The first rate is due in January of the year {year}.",
        )
    return record


def _make_stock_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the stock that is left, and the order that it needs."""
    item = w.plural(draw.choice(w.GOODS))
    top = (30, 90, 400, 900)[level - 1]
    opening, received = draw.integer(10, top), draw.integer(5, top)
    sold = draw.integer(1, opening + received)
    if level == 1:
        sold = draw.integer(1, opening)
        return Record(
            {"item": item, "stock": opening, "sold": sold},
            {"item": item, "sold": sold, "left": opening - sold},
            ["left = stock - sold"],
            f"The stock of {item} is {opening}; {sold} are sold.",
        )
    left = opening + received - sold
    record = Record(
        {"item": item, "stock": opening, "sold": sold, "added": received},
        {"item": item, "sold": sold, "added": received, "left": left},
        ["left = stock + added - sold"],
        f"The stock of {item} is {opening}; {received} are added and {sold} sold.",
    )
    if level >= 3:
        least = draw.integer(10, 300)
        record.add(
            {"least": least},
            {"order": max(0, least - left)},
            "order = least - left, but never below 0",
            f"There should be at least {least}.",
        )
        if level == 4:
            site = draw.choice(w.SITES)
            gold: Object = {"place": site, "short": left < least}
            record.add({"place": site}, gold, "short = true if left < least, else false", f"The place is the {site}.")
    return record


def _make_shipment_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for the weight of some boxes, and for what carries them."""
    parcel, goods = w.draw_item_code(draw), w.plural(draw.choice(w.GOODS))
    boxes, each = draw.integer(2, 12 if level < 3 else 60), draw.integer(3, 20 if level < 3 else 48)
    record = Record(
        {"id": parcel, "boxes": boxes, "kg_each": each},
        {"id": parcel, "boxes": boxes, "kg": boxes * each},
        ["kg = boxes * kg_each"],
        f"Shipment id {parcel} has {boxes} boxes of {each} kg each (kg_each).",
    )
    if level >= 2:
        record.add({"goods": goods}, {"goods": goods}, prose=f"The goods are {goods}.")
    if level >= 3:
        limit = draw.integer(2, 30) * 50
        by = "van" if boxes * each <= limit else "truck"
        record.add({}, {"by": by}, f'by = "van" up to {limit} kg, else "truck"')
    if level == 4:
        sent, days = draw.integer(1, 20), draw.integer(2, 10)
        record.add(
            {"sent": sent, "days": days},
            {"due": sent + days},
            "due = sent + days",
            f"It is sent on day {sent} and needs {days} days.",
        )
    return record


def _make_wages_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for wages: hours at a rate, hours above the usual ones, and tax."""
    name, job = draw.choice(w.FIRST), draw.choice(w.JOBS)
    hours = draw.integer(30, 60) if level == 4 else draw.integer(4, 39)
    rate = draw.integer(8, 30 if level < 3 else 48)
    usual = draw.integer(35, 45) if level == 4 else hours
    extra = max(0, hours - usual)
    gross = (hours + extra) * rate
    record = Record(
        {"name": name, "hours": hours, "rate": rate},
        {"name": name, "gross": gross},
        ["gross = hours * rate"],
        f"{name} works {hours} hours at a rate of {rate}.",
    )
    if level >= 2:
        record.add({"job": job}, {"job": job}, prose=f"The job is {job}.")
    if level == 4:
        record.add({}, {"extra": extra})
        record.rules = [f"extra = hours above {usual}, or 0", "gross = (hours + extra) * rate"]
    if level >= 3:
        tax = draw.integer(10, 30 + gross // 4)
        record.add({"tax": tax}, {"net": gross - tax}, "net = gross - tax", f"The tax is {tax}.")
    return record


def _make_savings_record(draw: Draw, level: int) -> Record:
    """Make a record that asks for money put aside week by week, and whether it reaches a goal."""
    owner = draw.choice(w.FIRST)
    weeks, weekly = draw.integer(2, 9 if level < 3 else 52), draw.integer(3, 30)
    start, goal = draw.integer(5, 200), draw.integer(3, 20) * 50
    saved = weeks * weekly + (start if level >= 2 else 0)
    record = Record(
        {"owner": owner, "weeks": weeks, "weekly": weekly},
        {"owner": owner, "saved": saved},
        ["saved = weeks * weekly" if level == 1 else "saved = start + weeks * weekly"],
        f"The owner is {owner}, who puts aside {weekly} (weekly) for {weeks} weeks.",
    )
    if level >= 2:
        record.add({"start": start}, prose=f"The start was {start}.")
    if level >= 3:
        aim = draw.choice(w.GOODS)
        record.add(
            {"aim": aim, "goal": goal},
            {"aim": aim, "reached": saved >= goal},
            "reached = true if saved >= goal, else false",
            f"The aim is '{aim}', and the goal {goal}.",
        )
    if level == 4:
        record.add({}, {"missing": max(0, goal - saved)}, "missing = goal - saved, or 0 if reached")
    return record


def _make_auction_record(draw: Draw, level: int) -> Record:
    """Make a record that asks who wins an auction, and what is paid."""
    lot = f"{draw.choice(w.COLOURS)} {draw.choice(w.GOODS)}"
    names = w.pick_distinct(draw, w.FIRST, (2, 2, 3, 4)[level - 1])
    bids = draw.sample(range(20, 99 if level < 3 else 900), len(names))
    top = max(bids)
    record = Record(
        {"lot": lot, **dict(zip(names, bids, strict=True))},
        {"lot": lot, "buyer": names[bids.index(top)], "price": top},
        ["buyer = name with the highest bid", "price = that bid"],
        f"The lot is called '{lot}'. {_write_name_number_pairs(names, bids, 'bids')}.",
    )
    if level >= 2:
        fee = draw.integer(3, 40)
        record.add({"fee": fee}, {"pays": top + fee}, "pays = price + fee", f"The fee is {fee}.")
    if level >= 3:
        record.add({}, {"bids": len(bids)}, "bids = number of bids")
    if level == 4:
        ask = draw.integer(20, 900)
        rule = "sold = true if price >= ask, else false"
        record.add({"ask": ask}, {"sold": top >= ask}, rule, f"The seller wants {ask} (ask).")
    return record


# From a record to an example

FAMILIES: dict[str, Callable[[Draw, int], Record]] = {
    "schedule": _make_schedule_record,
    "travel": _make_travel_record,
    "invoice": _make_invoice_record,
    "recipe": _make_recipe_record,
    "loan": _make_loan_record,
    "stock": _make_stock_record,
    "league": _make_league_record,
    "shipment": _make_shipment_record,
    "exam": _make_exam_record,
    "weather": _make_weather_record,
    "wages": _make_wages_record,
    "tickets": _make_tickets_record,
    "floor": _make_floor_record,
    "library": _make_library_record,
    "savings": _make_savings_record,
    "election": _make_election_record,
    "account": _make_account_record,
    "crew": _make_crew_record,
    "trip": _make_trip_record,
    "auction": _make_auction_record,
}

_FRAMES: tuple[str, ...] = w.sentences("constrained_json", "frames")
_WHAT: tuple[str, ...] = w.sentences("constrained_json", "what")


def _write_compact(value: Json) -> str:
    """Write JSON without spaces, with keys in the order of the prompt."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _write_given(draw: Draw, record: Record) -> str:
    """Write the given fields of a record as assignments, as lines, as JSON, or as prose."""
    pairs = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in record.given.items()]
    style = draw.index(6)
    if style == 0:
        return "; ".join(f"{key}={value}" for key, value in pairs)
    if style == 1:
        return ", ".join(f"{key}: {value}" for key, value in draw.permute(pairs))
    if style == 2:
        return "\n" + "\n".join(f"{key} = {value}" for key, value in pairs)
    # Styles 4 and 5 are both prose, which comes up twice as often as each of the others.
    if style == 3:
        return _write_compact(record.given)
    return record.prose


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: given fields and rules, and the object that follows from them."""
    family = draw.choice(list(FAMILIES))
    record = FAMILIES[family](draw, level)
    # Of the same family: otherwise families with long records would be rarer than the others.
    while len(_write_compact(record.gold)) > LIMIT:
        record = FAMILIES[family](draw, level)
    at = draw.index(len(_FRAMES))
    task = _FRAMES[at].format(
        given=_write_given(draw, record), rules="; ".join(record.rules), keys=", ".join(record.gold), family=family
    )
    task = task.replace(": \n", ":\n").replace("\n\n", "\n").replace("..", ".").strip()
    prompt = f"{task}\n{w.draw_answer_line(draw, draw.choice(_WHAT))}"
    parts = tuple(f"{key}={_write_compact(value)}" for key, value in record.gold.items())
    constraints: Object = {
        "family": family,
        "frame": str(at),
        "rules": record.rules,
        "given": record.given,
        "object": record.gold,
    }
    return Example(prompt, _write_compact(record.gold), parts, constraints, level)


TASK = constructed_task(
    "constrained-json-fill",
    "Constrained JSON Fill",
    Scorer("partial", scorers.score_json_object),
    generate,
    max_new_tokens=96,
    output="constrained JSON",
    version="1",
)
