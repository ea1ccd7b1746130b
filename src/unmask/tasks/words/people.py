"""First names, surnames and what people do for a living."""

from unmask.tasks.words.text import words

FIRST = words(
    """
    Abel Abigail Ada Adele Adrian Agnes Ahmed Aidan Aisha Alan Albert Alma Alvin Amara Amber Amir Amos Amy Anders
    Andrea Angus Anita Anna Anton Anya Archie Ariel Arlo Arthur Arun Asha Astrid Aubrey Audrey Aurora Ava Barbara
    Barney Basil Beatrice Becca Bella Benedict Bernard Bertha Bessie Beth Bianca Bjorn Blake Blanche Bodil Boris
    Brenda Brian Bridget Bruno Bryony Caleb Calvin Camilla Carla Carmen Carol Casper Cecil Cecilia Cedric Celia
    Chandra Charlie Chloe Clara Clarence Claude Clement Clive Colin Connor Conrad Cora Cordelia Cosmo Craig Curtis
    Cynthia Cyril Dagmar Daisy Dalia Damian Daphne Darius Deborah Declan Delia Denise Dennis Derek Desmond Dexter
    Diana Diego Dimitri Dolores Dominic Donna Dora Doris Douglas Duncan Dylan Edgar Edith Edmund Edna Edwin Eileen
    Elaine Eleanor Elias Elijah Elise Ella Ellis Elmer Elsa Elvira Emil Emilia Emma Enid Enzo Eric Ernest Esme
    Estelle Esther Ethan Ethel Eugene Eunice Evelyn Ezra Fabian Faith Farah Fatima Faye Felicity Felix Fergus Fiona
    Flora Florence Floyd Frances Frank Freda Freya Frida Gareth Gavin Gemma Geoffrey George Gerald Gerda Gideon
    Gilbert Gilda Gina Giles Gladys Glenn Gloria Gordon Grace Graham Greta Gunnar Gwen Hamish Hank Hanna Harold
    Harriet Harvey Hassan Hattie Hazel Hector Heidi Helen Helga Henrik Henry Herbert Hester Hilda Holly Homer Hope
    Horace Howard Hugh Hugo Ian Ibrahim Ida Igor Imogen Indira Ines Ingrid Iris Irma Isaac Isabel Ivan Ivor Ivy Jack
    Jacob Jane Janet Jasmine Jasper Javier Jean Jemima Jerome Jesse Jill Joan Joel Johan Jonah Jorge Josephine
    Joshua Joyce Juan Judith Julia Julius Justin Kai Kamal Kara Karen Karl Kate Keith Kelvin Kenneth Kevin Kieran
    Kirk Kirsten Klaus Kurt Lana Lance Lara Lars Laura Laurence Leah Leila Lena Leo Leonard Leroy Leslie Lester
    Lewis Liam Lila Lily Linda Lionel Lisa Lloyd Lois Lorna Louis Lucas Lucia Lucy Luisa Luther Lydia Lyle Mabel
    Magnus Malcolm Mara Marcel Margot Maria Marina Mario Marion Marta Martin Marvin Matilda Maud Maurice Mavis
    Maxine Mercy Meredith Mia Mickey Mildred Miles Milo Mina Mira Miriam Moira Molly Mona Morris Moses Muriel
    Mustafa Myra Nadia Naomi Natalie Nathan Neil Nell Nessa Neville Niall Nigel Nils Nina Noah Noel Nora Norman
    Odette Olaf Olga Olive Oliver Olwen Omar Ophelia Orla Oscar Otis Otto Owen Pablo Pamela Patrick Paul Paula Pearl
    Pedro Peggy Penelope Percy Perry Petra Philip Phoebe Phyllis Pierre Polly Priya Quentin Quinn Rachel Ralph Ramon
    Rashid Raymond Rebecca Reggie Reuben Rhoda Rita Robert Robin Roger Roland Roman Rory Rosalind Rosie Rowan Roy
    Ruby Rufus Rupert Russell Ruth Sabina Sadie Salim Sally Salma Samuel Sandra Sarah Saul Sean Selma Seth Shane
    Sheila Sidney Sigrid Silas Silvia Simon Sofia Sonia Stanley Stella Stephen Stuart Sunita Susan Sven Sybil
    Tabitha Tamara Tamsin Tanya Tariq Teresa Terry Thea Theodore Thomas Tilda Tobias Trevor Trudy Ulric Una Ursula
    Valerie Vanessa Vera Vernon Victor Viktor Vincent Viola Virgil Vivian Wade Wallace Walter Wanda Warren Wendy
    Wilbur Wilfred Willa Winifred Winston Xavier Yasmin Yusuf Yvette Yvonne Zachary Zara Zelda Zoe
    """
)

SURNAMES = words(
    """
    Abbott Acheson Adler Ainsley Akhtar Albright Aldous Allard Amadi Anand Appleby Archer Arden Armitage Arnold
    Ashby Ashdown Atherton Atwood Ayala Bagshaw Bahr Bainbridge Baldwin Banerjee Barclay Barlow Barnes Bartlett
    Barton Bateman Baxter Beaumont Beckett Bellamy Bennett Berger Bexley Birch Blackwell Blythe Bolton Bosworth
    Bowen Bradley Bramwell Brandt Braun Brewster Briggs Broderick Brody Bromley Buchanan Buckley Burgess Burnett
    Butterworth Byrne Calder Calloway Camara Campbell Cantrell Carlisle Carmody Cartwright Carver Castillo Cavendish
    Chadwick Chandler Chapman Chaudhry Clayton Clifford Cohen Colby Coleman Connolly Corbett Cortez Cotter Coyle
    Crawford Crosby Culver Dahl Dalton Danvers Darby Davenport Dawson Decker Delaney Dempsey Denham Desai Devlin
    Dickens Dixon Dobson Doherty Donovan Doyle Drummond Dudley Duarte Dunbar Dunmore Durand Eastman Eaton Ebbers
    Eckhart Edgerton Edwards Egan Ekberg Eldridge Ellery Ellison Elwood Emerson Engel Erskine Espinoza Everett
    Fairfax Falk Farrell Faulkner Fenwick Ferreira Fielding Finnegan Fischer Fitch Fletcher Flynn Foley Forbes
    Forsyth Foster Fowler Franklin Fraser Frost Fuller Gallagher Galloway Gardner Garland Garrick Gibbons Gifford
    Gilchrist Gillespie Glover Goddard Goodwin Gould Grady Granger Greaves Griffith Grimshaw Grover Gupta Guthrie
    Haddad Hadley Haines Halloran Hamilton Hancock Hanley Hansen Harding Hargreaves Harlow Harper Hartley Hastings
    Hawthorne Hayward Heaton Hendricks Henshaw Herrera Hickman Hobson Hodge Holbrook Holden Holloway Horton Houghton
    Hubbard Hudson Huxley Hyde Ibarra Ingham Ingram Irving Isherwood Iyer Jamison Janssen Jarvis Jefferson Jenkins
    Jensen Jessop Joshi Jovanovic Kamara Kapoor Kaufman Kavanagh Keating Keller Kendrick Kensington Kerr Khalil
    Kimball Kincaid Kipling Kirby Knowles Kowalski Kramer Kruger Kumar Lambert Lancaster Landry Langley Larkin
    Larsen Lassiter Lawson Leclerc Ledger Leighton Lennox Levine Lindqvist Lister Livingston Locke Lombard Lowell
    Ludlow Lynch Macleod Maddox Mahoney Malik Mallory Manning Marlowe Marsden Massey Mathers Maxwell Mayfield Mbeki
    McAllister Mckenna Meadows Medina Mehta Mercer Merrick Middleton Milburn Milligan Monroe Montague Moran Morley
    Mortimer Mulligan Munoz Murdoch Nakamura Napier Nash Naylor Nesbitt Newcomb Nicholls Nilsson Nkemelu Norwood
    Novak Oakley Obi Odell Ogden Okafor Okonkwo Oleary Oliveira Orton Osborne Osman Pacheco Padilla Paget Palmer
    Parrish Patel Paterson Paxton Pemberton Pendleton Percival Petersen Pickering Pike Pinto Plummer Pollard Porter
    Prentice Prescott Preston Pritchard Quigley Quimby Radcliffe Rafferty Ramsey Randall Rankin Ravenscroft Redfern
    Reilly Renshaw Reyes Rhodes Richter Ridley Rigby Riordan Ritchie Robson Rossi Rothwell Rowland Rutherford Ryder
    Salazar Sampson Sandoval Satchell Saunders Sawyer Schaefer Schultz Sedgwick Selby Sexton Shapiro Sheldon
    Shepherd Sheridan Siddiqui Simmons Sinclair Singh Skinner Slater Sloan Somerset Sorensen Spalding Spencer
    Stafford Stanton Stapleton Steele Sterling Stoddard Stratton Sullivan Sutcliffe Sutherland Swanson Sweeney
    Talbot Tanaka Tanner Tate Templeton Thackeray Thatcher Thornton Tiller Tipton Townsend Travers Trent Truman
    Tucker Turnbull Tyndall Underwood Upton Vance Vargas Vaughan Verma Vickers Vogel Waddell Wainwright Walcott
    Walden Walsh Warburton Warner Waterhouse Watkins Webber Wendell Wentworth Westbrook Wexler Wheatley Whitaker
    Whitlock Wickham Wilcox Wilder Willoughby Winslow Winthrop Woodward Wyatt Yamada Yardley Yates Yeats York Zamora
    Ziegler Zimmerman
    """
)

JOBS = words(
    """
    accountant acrobat actor actuary admiral analyst antiquary apprentice archer architect archivist artist
    astronaut astronomer athlete auditor author baker banker barber barista barrister bartender basketmaker
    beekeeper biologist blacksmith boatman bodyguard bookbinder bookkeeper botanist brewer bricklayer broker builder
    butcher butler captain caretaker carpenter carrier cartographer cashier caterer cellist chaplain chauffeur
    cheesemaker chemist choreographer cleaner clerk clown coach cobbler collector comedian composer conductor
    confectioner constable cook cooper coroner courier cowboy curator cyclist dancer dealer decorator dentist
    designer detective dietitian diplomat director diver doctor drummer economist editor electrician engineer
    engraver estimator explorer falconer farmer ferryman fiddler fireman fisherman fishmonger florist forester
    foreman gamekeeper gardener geographer geologist gilder glassblower glazier goldsmith governess governor
    greengrocer grocer groom guard guide hairdresser harbourmaster harpist hatter herald herbalist historian
    housekeeper huntsman illustrator innkeeper inspector interpreter inventor ironmonger janitor jeweller jockey
    joiner journalist judge juggler keeper labourer landlord laundress lawyer lecturer librarian lifeguard
    lighthousekeeper linguist locksmith lorryman magician magistrate manager mason mayor mechanic merchant messenger
    meteorologist midwife miller miner minister minstrel model musician navigator neighbour novelist nurse officer
    optician orderly organist painter paramedic pastor pathologist pharmacist philosopher photographer physician
    physicist pianist pilot plasterer playwright plumber poet policeman porter postman potter principal printer
    producer professor programmer prospector publisher puppeteer ranger receptionist referee reporter researcher
    sailor saddler sculptor secretary senator sergeant shepherd sheriff shipwright shoemaker signalman singer
    skipper soldier solicitor steward stonemason storyteller student surgeon surveyor swimmer tailor tanner teacher
    telegraphist thatcher tinker toymaker trainer translator trapper treasurer tutor umpire undertaker upholsterer
    usher valet violinist vicar waiter warden watchmaker weaver welder whaler wheelwright woodcutter wrestler writer
    zookeeper
    """
)

TEAMS = words(
    """
    Arrows Badgers Bandits Beacons Bison Blazers Bobcats Bolts Breakers Bulldogs Buzzards Captains Chargers Colts
    Comets Condors Corsairs Cougars Cyclones Dragons Drifters Eagles Embers Falcons Flames Foxes Giants Griffins
    Gulls Harriers Hawks Herons Hornets Huskies Jackals Jaguars Kestrels Knights Lancers Lions Lynxes Magpies
    Mariners Meteors Monarchs Mustangs Nomads Orcas Otters Owls Panthers Pilots Pioneers Pirates Ponies Raiders
    Rangers Ravens Rebels Rockets Rovers Royals Saints Scouts Sharks Sparks Spartans Stags Stallions Stars Storks
    Swans Terriers Thunder Tigers Titans Tritons Turtles Vikings Vipers Voyagers Wanderers Warriors Wasps Wizards
    Wolves Wrens Yaks Zephyrs
    """
)

MOODS = words(
    """
    angry anxious bald bored brave busy calm careful careless cheerful clever clumsy confident cross curious cynical
    eager earnest elderly famous fearless foolish forgetful friendly gentle gifted gloomy greedy grumpy honest
    hungry impatient jealous jolly kind lazy lonely loyal modest nervous nosy patient polite proud quiet retired
    rude sad serious shy silent sleepy stern strict stubborn talkative thirsty tired truthful unlucky wealthy weary
    wise witty worried young
    """
)
"""Adjectives for people."""
