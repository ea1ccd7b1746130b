"""Verbs with their forms, and adjectives with their relatives."""

from unmask.tasks.words.text import forms, words

VERBS = forms(
    """
    admire/admired adjust/adjusted advertise/advertised arrange/arranged assemble/assembled attach/attached
    auction/auctioned balance/balanced borrow/borrowed bury/buried bump/bumped carry/carried catalogue/catalogued
    chain/chained check/checked clean/cleaned clear/cleared collect/collected colour/coloured conceal/concealed
    copy/copied count/counted cover/covered crush/crushed damage/damaged decorate/decorated deliver/delivered
    demand/demanded describe/described design/designed dismantle/dismantled display/displayed donate/donated
    drag/dragged drop/dropped dust/dusted empty/emptied examine/examined exchange/exchanged exhibit/exhibited
    fasten/fastened fetch/fetched film/filmed fix/fixed gather/gathered grab/grabbed guard/guarded hoist/hoisted
    hurl/hurled identify/identified import/imported inherit/inherited inspect/inspected install/installed
    juggle/juggled kick/kicked label/labelled launch/launched lift/lifted list/listed load/loaded locate/located
    lower/lowered measure/measured mend/mended misplace/misplaced mount/mounted move/moved name/named notice/noticed
    number/numbered obtain/obtained offer/offered order/ordered pack/packed paint/painted park/parked
    photograph/photographed place/placed polish/polished position/positioned possess/possessed prepare/prepared
    preserve/preserved present/presented price/priced purchase/purchased push/pushed raise/raised receive/received
    recover/recovered recycle/recycled reject/rejected remove/removed rent/rented repair/repaired replace/replaced
    rescue/rescued reserve/reserved restore/restored return/returned review/reviewed rinse/rinsed roll/rolled
    sample/sampled save/saved scrub/scrubbed seize/seized select/selected share/shared ship/shipped sketch/sketched
    smash/smashed smuggle/smuggled sort/sorted spot/spotted stack/stacked stamp/stamped steady/steadied store/stored
    stow/stowed study/studied supply/supplied swap/swapped tag/tagged test/tested throw/threw/thrown tie/tied
    toss/tossed touch/touched trade/traded transport/transported trim/trimmed unload/unloaded unpack/unpacked
    unwrap/unwrapped use/used value/valued wash/washed watch/watched weigh/weighed wheel/wheeled wrap/wrapped
    bring/brought build/built buy/bought find/found hide/hid/hidden hold/held lose/lost sell/sold send/sent
    steal/stole/stolen take/took/taken draw/drew/drawn break/broke/broken choose/chose/chosen
    forget/forgot/forgotten keep/kept leave/left lend/lent shake/shook/shaken see/saw/seen
    """
)
"""Base, past, and the participle where it differs from the past: things one can do to any object."""

OPPOSITES = forms(
    """
    hot/cold wet/dry full/empty open/closed early/late young/old rich/poor strong/weak thick/thin deep/shallow
    heavy/light wide/narrow loud/quiet clean/dirty tight/loose rough/smooth sharp/blunt cheap/expensive fast/slow
    high/low long/short near/far hard/soft true/false sweet/sour bright/dim alive/dead awake/asleep ancient/modern
    public/private guilty/innocent major/minor odd/even inner/outer upper/lower northern/southern eastern/western
    positive/negative present/absent singular/plural temporary/permanent vertical/horizontal domestic/foreign
    humble/proud polite/rude raw/cooked safe/dangerous solid/liquid straight/crooked tame/wild urban/rural
    visible/invisible happy/unhappy fair/unfair tidy/untidy kind/unkind stable/unstable likely/unlikely able/unable
    legal/illegal possible/impossible regular/irregular patient/impatient honest/dishonest loyal/disloyal
    active/inactive accurate/inaccurate complete/incomplete correct/incorrect direct/indirect mature/immature
    moral/immoral mobile/immobile obedient/disobedient perfect/imperfect proper/improper pure/impure
    rational/irrational relevant/irrelevant logical/illogical literate/illiterate buy/sell push/pull arrive/depart
    begin/end lend/borrow win/lose give/take laugh/cry float/sink succeed/fail create/destroy attack/defend
    accept/refuse remember/forget expand/contract include/exclude increase/decrease ascend/descend appear/disappear
    agree/disagree obey/disobey trust/distrust lock/unlock pack/unpack tie/untie wrap/unwrap zip/unzip dress/undress
    load/unload fold/unfold day/night friend/enemy victory/defeat profit/loss entrance/exit question/answer
    summer/winter front/back top/bottom left/right north/south east/west war/peace love/hate birth/death
    ceiling/floor buyer/seller arrival/departure always/never everything/nothing forwards/backwards
    upstairs/downstairs indoors/outdoors above/below before/after inside/outside up/down over/under
    """
)

GRADED = words(
    """
    bold brief bright broad calm cheap clean clear clever cold cool dark deep dense dull faint fair fast fine firm
    flat fresh full grand great green hard harsh high keen kind light long loud low mean meek mild narrow near neat
    new old plain poor proud pure quick quiet rare rich rough round sad sharp short shrewd simple slow small smart
    smooth soft sour steep stern stiff strange strict strong sweet swift tall tender thick thin tight tough vague
    vast warm weak wet wide wild wise young busy crazy dirty early easy empty funny greedy happy heavy hungry juicy
    lazy lively lonely lovely lucky merry messy noisy pretty rusty silly sleepy smelly spicy sunny tasty tidy tiny
    ugly wealthy windy
    """
)
"""Adjectives that form -er and -est."""

ADJECTIVES = words(
    """
    ancient antique battered beautiful bent bold bright broken bulky bumpy charming cheap cheerful chipped classic
    clean clumsy coarse common compact costly cracked crooked curious curly curved cute dainty damaged damp dazzling
    decent delicate dented different dim dirty drab dreary dull dusty elegant enormous exotic expensive faded
    familiar famous fancy fashionable favourite fine fitted flimsy floppy folding foreign forgotten fragile funny
    fuzzy genuine giant gleaming glittering glossy gorgeous graceful grand greasy grimy handmade handsome handy
    heavy hefty hidden hollow homemade huge humble identical imported jagged joined jumbo knotted large legendary
    light little local lonely long lopsided lost lovely lucky luxurious magnificent massive matching mended messy
    miniature modern modest mouldy muddy mysterious narrow neat neglected new noisy nondescript normal novel oblong
    official old oily ordinary ornate oval oversized painted patched patterned peculiar perfect plain pleasant
    pointed polished portable powerful precious pretty priceless private rare recycled reliable remarkable repaired
    rigid robust rotten rough round royal rugged ruined rural rusty sacred scratched scruffy secret shabby shaky
    shallow sharp shiny simple sleek slender slim slippery small smart smooth soft solid spare special splendid
    spotless spotted square stained standard sticky stiff stolen strange striped sturdy stylish superb tall tattered
    tarnished temporary tender thick thin tidy tiny torn traditional transparent tricky twisted typical ugly unique
    unusual used useful useless valuable vintage warm waterproof wavy weathered weird wet wide wobbly wonderful
    wooden worn wrinkled yellowed
    """
)

MANNERS = words(
    """
    boldly bravely briefly brightly calmly carefully cautiously cheerfully cleverly clumsily coolly correctly
    eagerly easily elegantly fiercely firmly foolishly frankly freely gently gladly gracefully greedily happily
    hastily honestly hungrily innocently jealously joyfully kindly lazily loudly lovingly merrily neatly nervously
    noisily openly painfully patiently politely promptly proudly publicly quickly quietly rapidly readily
    reluctantly sadly secretly seriously silently skilfully sleepily slowly smoothly softly solemnly steadily
    stubbornly suddenly sweetly swiftly tenderly thoughtfully tidily tightly urgently warmly wearily wildly
    willingly wisely
    """
)

COMPOUNDS = forms(
    """
    air/craft arm/chair back/pack ball/room bath/tub bed/room bee/hive bird/cage birth/day black/board blue/bell
    boat/house book/case box/car butter/cup butter/fly camp/fire cart/wheel chalk/board class/room cob/web
    corn/field count/down cup/board day/break day/light desk/top dish/cloth door/bell door/step down/hill dragon/fly
    draw/bridge dust/bin ear/ring earth/quake egg/shell eye/brow farm/yard finger/nail fire/place fire/wood
    fish/pond flag/pole flower/pot foot/ball foot/step foot/print frost/bite fruit/cake gate/way gold/fish
    grand/father grass/hopper grave/yard green/house hail/stone hair/brush hand/bag hand/shake head/ache heart/beat
    hill/side home/work horse/shoe hour/glass house/boat jelly/fish key/hole key/board lady/bird lamp/post land/mark
    life/boat light/house lip/stick match/box milk/maid milk/shake mile/stone moon/light motor/way mouse/trap
    neck/lace news/paper night/fall note/book out/side oat/meal over/coat pan/cake paper/weight pass/port patch/work
    pea/cock pea/nut play/ground pop/corn post/card quick/sand rail/road rain/bow rain/coat rattle/snake river/bank
    road/side row/boat sail/boat sand/castle sand/paper saw/dust scare/crow sea/gull sea/shell sea/side sheep/dog
    ship/wreck shoe/lace shop/keeper side/walk sky/lark sky/light snow/ball snow/flake snow/man soap/box
    spring/board stair/case star/fish steam/boat stop/watch straw/berry summer/time sun/flower sun/light sun/rise
    sun/set table/cloth tea/cup tea/pot thunder/storm tool/box tooth/brush tooth/paste tree/top two/fold
    under/ground wall/paper water/fall water/melon wave/length week/end wheel/chair wild/life wind/mill wood/pecker
    wood/work work/shop yard/stick
    """
)
