"""Records of journeys and events."""

from unmask.tasks.constructed.constrained_json.record import JsonRecord, Object
from unmask.tasks.draw import Draw
from unmask.tasks.words import CODE_LETTERS, EVENTS, SURNAMES, TEAMS, clock, distinct, place_name


def schedule(draw: Draw, level: int) -> JsonRecord:
    """When an event ends, and which room it takes."""
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


def travel(draw: Draw, level: int) -> JsonRecord:
    """Nights at a price, and the day of leaving."""
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


def tickets(draw: Draw, level: int) -> JsonRecord:
    """People at two prices, and the change."""
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


def trip(draw: Draw, level: int) -> JsonRecord:
    """Hours at a speed, and the time of arrival."""
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


def league(draw: Draw, level: int) -> JsonRecord:
    """Games won, drawn and lost, and the points for them."""
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


def election(draw: Draw, level: int) -> JsonRecord:
    """Votes, who wins and by how many."""
    names = distinct(draw, SURNAMES, 2 if level < 3 else 3)
    votes = draw.sample(range(11, 99 if level < 3 else 480), len(names))
    order = sorted(zip(votes, names, strict=True), reverse=True)
    given: Object = dict(zip(names, votes, strict=True))
    gold: Object = {"winner": order[0][1], "total": sum(votes)}
    rules = ["winner = name with most votes", "total = all votes added"]
    results = [f"{name} got {n} votes" for name, n in zip(names, votes, strict=True)]
    prose = f"In the election, {', '.join(results)}."
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
