"""Records of money and goods."""

from unmask.tasks.constructed.constrained_json.record import JsonRecord, Object
from unmask.tasks.draw import Draw
from unmask.tasks.words import COLOURS, FIRST, GOODS, JOBS, SITES, code, distinct, plural


def invoice(draw: Draw, level: int) -> JsonRecord:
    """Pieces at a price, postage, and what is to be paid."""
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


def loan(draw: Draw, level: int) -> JsonRecord:
    """Monthly rates, what they come to and what they cost."""
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


def stock(draw: Draw, level: int) -> JsonRecord:
    """What is left of something, and what must be ordered."""
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


def shipment(draw: Draw, level: int) -> JsonRecord:
    """Boxes, their weight, and what carries them."""
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


def wages(draw: Draw, level: int) -> JsonRecord:
    """Hours at a rate, hours above the usual ones, and tax."""
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


def savings(draw: Draw, level: int) -> JsonRecord:
    """Money put aside week by week, and a goal."""
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


def auction(draw: Draw, level: int) -> JsonRecord:
    """Bids, who wins and what is paid."""
    lot = f"{draw.choice(COLOURS)} {draw.choice(GOODS)}"
    names = distinct(draw, FIRST, (2, 2, 3, 4)[level - 1])
    bids = draw.sample(range(20, 99 if level < 3 else 900), len(names))
    given: Object = {"lot": lot, **dict(zip(names, bids, strict=True))}
    top = max(bids)
    gold: Object = {"lot": lot, "buyer": names[bids.index(top)], "price": top}
    rules = ["buyer = name with the highest bid", "price = that bid"]
    offers = [f"{name} bids {bid}" for name, bid in zip(names, bids, strict=True)]
    prose = f"The lot is called '{lot}'. {', '.join(offers)}."
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
