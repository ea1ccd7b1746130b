"""Nouns by what they can do in a sentence: be carried, be eaten, be met, be a place."""

from unmask.tasks.words.text import words

THINGS = words(
    """
    adapter album alarm almanac amulet anchor anvil apron armchair arrow ashtray atlas awning axe badge bagpipe ball
    balloon bandage banjo banner barometer barrel basin basket battery beacon beaker bedspread bell bench bicycle
    binder blanket blender blowtorch board bobbin bolster bolt bonnet bookend bookmark boomerang bottle bowl box
    bracelet bracket brick bridle briefcase broom brooch brush bucket buckle bugle bulb bundle buoy button cabinet
    cable calculator calendar camera candle candlestick cane canister canoe canvas cap capsule carafe card carpet
    carriage cart carton cartridge case casket cassette catapult cauldron cello chain chair chalice chandelier chart
    cheque chest chisel churn circuit clamp clarinet clasp cleaver clip clipboard clock coaster coat coffer coil
    coin collar colander comb compass computer concertina cone console cooker cork corkscrew costume cot couch
    counter cradle crate crayon crowbar crown crystal cube cup cupboard curtain cushion cylinder cymbal dart
    decanter desk dial diamond diary dictionary dipper disc doll dollhouse door doormat doorbell dowel drawer
    drawing dresser drill drum dustbin dustpan duvet dynamo earring easel ember emblem engine envelope eraser
    etching fan faucet feather fender fiddle figurine file filter firework flag flagon flask flint float flowerpot
    flute folder footstool fork fountain frame fridge funnel fuse gadget garland gasket gauge gavel gear gem
    generator globe glove goblet gong grater grill grinder guitar hairbrush hairpin hammer hammock hamper handbag
    handcart handle hanger harmonica harness harp hatchet haversack headphone headset heater heirloom helmet hinge
    hoist hook hose hourglass instrument iron jar jewel jigsaw journal jug kayak keg kettle key keyboard kite
    knapsack ladder ladle lamp lampshade lantern lathe latch lectern ledger lens letter lever lid lighter lock
    locker locket log loom loudspeaker lute machine magnet magnifier mallet mandolin map marble marker mask mast mat
    matchbox mattress medal megaphone metronome microphone microscope mill mirror mitten mixer modem mop mortar
    motor mug nail napkin necklace needle net newspaper nozzle nut oar oboe ornament oven package padlock paddle
    pail paintbrush painting palette pamphlet pan panel paperclip parasol parcel passport pedal peg pen pencil
    pendant pendulum pennant percolator photograph piano pickaxe pillow pin pincushion pipe pipette pitcher
    pitchfork plank plaque plate platter plough plug plunger pocketbook poker postcard poster pot pouch printer
    prism projector propeller puppet purse puzzle quill quilt quiver racket radiator raft rake ramp razor receipt
    receiver recorder reel ribbon ring rivet robot rocket roller rope rucksack rudder rug ruler sack saddle sail
    sander satchel saucepan saucer saw saxophone scale scalpel sceptre scooter screen screw screwdriver scroll
    sculpture scythe seal sextant shawl shield shovel shutter sickle sieve signet sink skateboard skewer skillet
    slate sled sledge sledgehammer slide sling snorkel socket sofa spade spanner speaker spear spindle spool spoon
    sprinkler spring stamp stapler statue stencil stethoscope stick stool stopwatch stove strap straw suitcase
    sundial surfboard switch sword table tablecloth tablet tambourine tank tankard tape tapestry target teacup
    teapot telephone telescope television tent thermometer thermos thimble thread ticket tile timer toaster token
    tool toolbox toothbrush torch tote towel toy tractor tray treadmill tricycle trinket tripod trolley trombone
    trophy trowel trumpet trunk tube tuba tumbler typewriter tyre ukulele umbrella urn vase vault veil vial viola
    violin visor wagon wallet wardrobe watch wedge wheel wheelbarrow whetstone whisk whistle wick windmill window
    wire wok wreath wrench xylophone yoke zipper zither
    """
)
"""Objects of everyday life that can be owned, sold, counted and carried (by someone strong)."""

CLOTHES = words(
    """
    anorak bathrobe belt beret blazer blouse boot bowtie cape cardigan cloak corset cravat cummerbund dress fedora
    fleece frock gaiter garter gown hat headband hood jacket jerkin jersey jumper kaftan kilt kimono legging loafer
    moccasin nightgown overall overcoat parka poncho pullover raincoat robe sandal sari sash shirt shoe shoelace
    skirt slipper smock sneaker sock stocking stole suit sunhat sweater tabard tiara tie toga trilby tunic turban
    tuxedo uniform vest waistcoat windbreaker
    """
)

ANIMALS = words(
    """
    aardvark adder albatross alligator alpaca anchovy ant anteater antelope ape armadillo auk baboon badger barnacle
    bat bear beaver bee beetle blackbird boar bobcat buck budgie buffalo bull bumblebee bunny bustard butterfly
    buzzard camel canary capybara caribou carp cat caterpillar centipede chaffinch chameleon cheetah chicken
    chimpanzee chinchilla chipmunk cicada clam cobra cockatoo cockerel cockle cockroach cod colt condor coot
    cormorant cougar cow coyote crab crane cricket crocodile crow cuckoo curlew deer dingo dog dolphin donkey
    dormouse dove dragonfly duck duckling eagle earthworm earwig eel egret eland elephant elk emu ermine falcon fawn
    ferret finch firefly flamingo flea flounder fly foal fox frog gannet gazelle gecko gerbil gibbon giraffe gnat
    gnu goat goldfinch goldfish goose gopher gorilla grasshopper grebe greyhound grouse gull guppy haddock halibut
    hamster hare hawk hedgehog hen heron herring hippo hornet horse hound hummingbird hyena ibex ibis iguana impala
    jackal jackdaw jaguar jay jellyfish kangaroo kestrel kingfisher kitten kiwi koala lamb lapwing lark lemming
    lemur leopard limpet linnet lion lizard llama lobster locust loon lynx macaw mackerel magpie mallard manatee
    mantis marlin marmot marten mastiff meerkat mink minnow mole mongoose monkey moose mosquito moth mouse mule
    muskrat mussel newt nightingale ocelot octopus opossum orangutan orca oriole osprey ostrich otter owl ox oyster
    panda panther parakeet parrot partridge peacock pelican penguin perch pheasant pig pigeon pike piranha plover
    polecat pony poodle porcupine porpoise prawn puffin puma puppy python quail quokka rabbit raccoon ram rat raven
    reindeer rhino robin rook rooster salamander salmon sardine scallop scorpion seagull seahorse shark sheep shrew
    shrimp skunk skylark sloth slug snail snake snipe sparrow spider squid squirrel stag starfish starling stingray
    stoat stork sturgeon swallow swan swift tadpole tapir tarantula termite tern terrapin thrush tiger toad tortoise
    toucan trout tuna turkey turtle viper vole vulture wallaby walrus warbler wasp weasel whale wildcat wolf
    wolverine wombat woodpecker worm wren yak zebra
    """
)

FOODS = words(
    """
    almond apple apricot artichoke aubergine avocado bagel baguette banana beetroot berry biscuit blackberry
    blueberry brioche brownie bun burger burrito cabbage cake candy caramel carrot cashew cauliflower cheesecake
    cherry chestnut chilli chocolate clementine coconut cookie courgette cracker cranberry crepe croissant crumpet
    cucumber cupcake currant cutlet date doughnut dumpling eclair egg falafel fig fritter fudge gherkin gooseberry
    grape grapefruit hazelnut kebab kumquat leek lemon lentil lettuce lime lollipop lychee macaroon mandarin mango
    marrow meatball melon meringue muffin mushroom nectarine noodle nougat nutmeg olive omelette onion orange
    pancake papaya parsnip pastry peach peanut pear pepper persimmon pickle pie pineapple pistachio pizza plum
    pomegranate pomelo potato pretzel prune pudding pumpkin quiche quince radish raisin raspberry roll samosa
    sandwich satsuma sausage scone shallot sprout steak strawberry strudel sultana swede tamarind tangerine tart
    toffee tomato truffle turnip waffle walnut wafer yam
    """
)

PLANTS = words(
    """
    acacia alder aloe anemone ash aspen aster azalea balsam bamboo basil begonia birch bluebell bracken bramble
    buttercup cactus camellia carnation cedar chrysanthemum clover columbine coriander cornflower cowslip crocus
    cypress daffodil dahlia daisy dandelion dill elder elm fennel fern foxglove freesia fuchsia gardenia geranium
    ginger gladiolus gorse hawthorn hazel heather hemlock hibiscus holly honeysuckle hornbeam hyacinth hydrangea
    iris ivy jasmine juniper larch laurel lavender lichen lilac lily lobelia lotus lupin magnolia mallow maple
    marigold marjoram mimosa mint mistletoe moss mulberry myrtle narcissus nasturtium nettle oak oleander orchid
    oregano palm pansy parsley peony periwinkle petunia pine poppy poplar primrose privet rhododendron rose rosemary
    rowan rush saffron sage snapdragon snowdrop sorrel spruce sunflower sweetpea sycamore tansy tarragon thistle
    thyme tulip vervain violet wallflower willow wisteria yarrow yew zinnia
    """
)

SITES = words(
    """
    abbey academy airport alley aquarium arcade archive arena armoury arsenal attic avenue bakery balcony bank
    barbershop barn barracks basement bathhouse bay beach belfry boathouse bookshop boutique bridge brewery bunker
    butchery cabin cafe campsite canal canteen castle cathedral cave cellar cemetery chalet chapel church cinema
    citadel classroom clinic cloister coast college colony corridor cottage courthouse courtyard crossroads crypt
    dairy depot desert dockyard dormitory driveway dungeon embassy estate factory farm farmhouse ferry field foundry
    forest fort fortress forum gallery garage garden gatehouse gateway glade glen greenhouse grocery grotto
    gymnasium hall hangar harbour hayloft headland hilltop hospital hostel hotel house hut inn island jail jetty
    kennel kiosk kitchen laboratory lagoon laundry library lighthouse lobby lodge loft lounge manor mansion market
    marsh meadow mine monastery monument moor mosque motel museum nursery oasis observatory office orchard palace
    pantry parade park parlour pavilion pharmacy pier planetarium plantation playground plaza port prairie prison
    quarry quay ranch reservoir restaurant ruin sanctuary sauna sawmill school shelter shipyard shop shore shrine
    smithy square stable stadium station street studio summit supermarket surgery swamp synagogue tavern temple
    terrace theatre tower town tunnel university valley vestry viaduct village villa vineyard warehouse waterfall
    watermill wharf winery woodland workshop yard zoo
    """
)
"""Places that follow 'the'."""

MATERIALS = words(
    """
    aluminium amber bamboo brass bronze canvas cardboard cedar ceramic clay copper cork cotton denim ebony enamel
    felt flannel glass gold granite hemp iron ivory jade lace leather linen mahogany marble metal nylon oak paper
    pearl pewter pine plaster plastic plywood porcelain quartz rattan rubber sandstone satin silk silver slate steel
    stone straw suede teak tin tweed velvet walnut wax wicker willow wool zinc
    """
)

COLOURS = words(
    """
    amber aqua azure beige black blue bronze brown burgundy buff cerise charcoal cobalt copper coral cream crimson
    cyan ecru emerald fawn gold green grey indigo ivory jade khaki lavender lemon lilac lime magenta mahogany maroon
    mauve mustard navy ochre olive orange peach pearl pink plum purple red rose ruby russet rust sapphire scarlet
    sepia silver tan taupe teal turquoise umber vermilion violet white yellow
    """
)

EVENTS = words(
    """
    assembly auction audition ball banquet barbecue bazaar briefing broadcast carnival ceremony championship chat
    class clinic concert conference contest course dance debate demonstration derby dinner display drill exam
    exhibition expo fair feast festival final fireworks forum gala gig hearing hike inspection interview lecture
    lesson lottery luncheon march marathon match matinee meeting opera outing pageant panel parade party performance
    picnic play premiere procession quiz rally reading recital reception regatta rehearsal reunion review ritual
    screening seminar service show sleepover social summit surgery tasting tour tournament training trial trip
    tutorial vigil visit voyage wedding workshop
    """
)

UNITS = words("box crate bag sack jar tin tray barrel basket bundle carton case chest drum hamper pallet")
"""Containers that hold a fixed number of something."""

IDEAS = words(
    """
    ability absence accident account action advice age agenda agreement alliance allowance amount anger answer
    apathy appeal approval argument army arrival article aspect attempt attitude audience average award balance
    bargain barrier basis battle beauty beginning behaviour belief benefit birth blame blessing blood bonus boredom
    boundary bravery breath bribe bubble budget burden business caption capture care career cause caution century
    chance change chapter charity charm childhood choice circle citizen claim clarity climate clue coincidence
    comedy comfort command comment commerce companion company comparison complaint concept concern condition conduct
    confusion connection conquest consent contact content contract contrast control copy courage court craft
    creation crime crisis critic crowd culture cure curiosity custom cycle damage danger darkness dawn deadline deal
    debt decade decision decline defeat defence degree delay delight demand democracy departure desire despair
    destiny detail device devotion dialogue difference dignity dilemma direction disaster discipline discovery
    disguise distance district doubt drama dream duel duration duty earth echo economy edge edition education effect
    effort election element emotion emphasis empire energy entrance envy episode equation error essay essence
    eternity evening evidence example excuse exercise exit expense expert export extent factor failure faith fame
    family fashion fate fault favour fear feature feeling fiction figure finance finding finish flame flavour flight
    focus folklore folly force forecast form formula fortune fraction fragment freedom friction friend frontier fuel
    function fund fury future gain gamble game garbage genius gesture ghost gift glory goal gossip grace grammar
    gravity grief ground group growth guess guest guidance guilt habit half handful happiness harmony harvest haste
    hazard health heart heaven height heritage hero hint history holiday honesty honour hope horizon horror hour
    humour hunger hunt idea ideal identity image impact impulse incident income index industry influence inquiry
    insight instance instinct insult intent interest interval invention irony issue item joke journey joy judgement
    jungle justice kindness kingdom knack knowledge labour language laughter law layer leader league leap legacy
    legend leisure length lesson level liberty license life light limit line link list loan logic loss love loyalty
    luck luxury magic mandate manner margin mayhem meaning measure mercy merit message method mind minute miracle
    mischief misery mission mistake moment mood motion motive murmur mystery myth nation nature neglect nerve news
    night noise notice novel novelty number object obstacle occasion offer opinion option order origin outcome
    output outrage oxygen pace pact pain panic paradox pardon parish passion patience pattern pause payment peace
    penalty peril period permit phase phrase pity plan plea pleasure plot poem poetry point policy poverty power
    practice praise prayer presence pressure pride prince principle prize problem process product profit progress
    promise proof property proposal prospect protest proverb purpose quality quantity quarrel quest question quota
    race rage rain rate ratio reason rebel record reform refuge regret region relief remark remedy rent request
    rescue research respect response result revenge reward rhyme rhythm riddle rise risk rival river romance route
    routine royalty rule rumour safety sample scandal scene scent scheme scholar science scope score season secret
    section sector sense sequel series shade shadow shame shape share shock signal silence sketch skill slogan slope
    smile smoke society solution song sorrow sound source space speech speed spirit splendour sport stage standard
    start status stem storm story strategy strength stress strike structure struggle style subject success summer
    supply surplus surprise survey symbol sympathy symptom system tale talent task taste team temper tempo tension
    theme theory threat thrill thunder tide time title tone topic torment total trace trade tradition tragedy trail
    travel treason treaty trend tribe tribute trick triumph trouble trust truth type union universe unrest upkeep
    urgency usage utopia vacancy value vanity variety venture verdict verse victory view virtue vision voice volume
    vote vow wage warmth warning weakness wealth weather weight welfare whim whisper winter wisdom wish wit witness
    wonder word work world worry worth year yield youth zeal zenith zone
    """
)
"""Words for lists and spelling; not used as things that someone does something to."""

GOODS = (*THINGS, *CLOTHES, *FOODS)
"""What a shop could sell by the piece."""
