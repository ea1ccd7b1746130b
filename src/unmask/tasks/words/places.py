"""Towns, regions, and the words of the calendar."""

from unmask.tasks.words.text import words

TOWNS = words(
    """
    Aachen Aarhus Abuja Accra Adelaide Agadir Alma Ankara Antwerp Arras Asmara Assisi Athens Atlanta Austin Avignon
    Baku Bamako Bangkok Bari Basel Bath Beirut Belfast Belgrade Bergen Berlin Bern Biarritz Bilbao Bogota Bologna
    Bonn Boston Bremen Brighton Brisbane Bristol Bruges Brussels Budapest Buffalo Cadiz Cairo Calais Calgary
    Canberra Canterbury Caracas Cardiff Carlisle Catania Chennai Chester Chicago Cologne Como Copenhagen Cordoba
    Cork Cusco Dakar Dallas Damascus Darwin Delft Delhi Denver Derby Detroit Dhaka Dijon Dover Dresden Dubai Dublin
    Dundee Durban Durham Edinburgh Essen Exeter Fez Florence Fresno Galway Gdansk Geneva Genoa Ghent Glasgow
    Gloucester Granada Graz Halifax Hamburg Hanoi Harare Havana Helsinki Hobart Houston Hull Innsbruck Ipswich
    Istanbul Izmir Jakarta Kabul Kampala Karachi Kendal Kiev Kigali Kingston Kobe Kolkata Krakow Kyoto Lagos Lahore
    Lancaster Leeds Leicester Leiden Leipzig Lille Lima Lincoln Linz Lisbon Liverpool London Lublin Lusaka Luxor
    Lyon Madrid Malaga Malmo Managua Manchester Manila Maputo Marseille Medina Melbourne Memphis Miami Milan Minsk
    Mombasa Montreal Moscow Mumbai Munich Nagoya Nairobi Nantes Naples Nice Norwich Nottingham Odense Odessa Oporto
    Oran Osaka Oslo Ostrava Ottawa Oxford Padua Palermo Panama Paris Parma Pavia Perth Perugia Pisa Pittsburgh
    Plymouth Portland Poznan Prague Pretoria Quebec Quito Rabat Ravenna Reading Reno Riga Rimini Rome Rostock
    Rotterdam Rouen Salem Salford Salzburg Santiago Seattle Seoul Seville Sheffield Siena Singapore Sofia
    Southampton Split Stirling Stockholm Stuttgart Sydney Tallinn Tampa Tampere Tangier Tbilisi Tehran Tirana Tokyo
    Toledo Toronto Toulouse Trento Trieste Tripoli Truro Tunis Turin Turku Utrecht Valencia Vancouver Varna Venice
    Verona Vienna Vilnius Warsaw Wellington Weymouth Winchester Worcester York Zagreb Zurich
    """
)

DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")

MONTHS = words("January February March April May June July August September October November December")
