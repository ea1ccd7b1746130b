"""Unmasking methods: one file each, and `methods.toml`, the table that names them."""

from unmask.methods.best_of import BestOf
from unmask.methods.candidates import (
    DEFAULT_ORDER,
    HOLDS_CHOICES,
    OWN_NAME,
    CandidateSets,
    candidate,
    candidates,
    check_reference,
    combine_candidates,
    name_with_share,
    reference_of,
    register_reference,
    with_explicit_order,
)
from unmask.methods.composed import CombinedPolicy, Composed, compose, fixed_action, has_own_input, with_remasking
from unmask.methods.core_remasking import CoRe
from unmask.methods.dcd import DCD
from unmask.methods.ddpd import DDPD
from unmask.methods.demask import DEMASK
from unmask.methods.dos import DOS
from unmask.methods.dream import Dream
from unmask.methods.dsb import DSB
from unmask.methods.dus import DUS
from unmask.methods.eb_sampler import EBSampler
from unmask.methods.fast_dllm import FastDLLM, FastDLLMDream
from unmask.methods.heads import HEADS, HeadCard, read_card, save_head, shipped_heads, with_head
from unmask.methods.info_gain import InfoGain
from unmask.methods.klass import KLASS
from unmask.methods.llada import LLaDA
from unmask.methods.lookum import LookUM
from unmask.methods.medal import MEDAL
from unmask.methods.order_token_search import OrderTokenSearch
from unmask.methods.p2 import P2
from unmask.methods.registry import (
    ANY_FAMILY,
    METHODS,
    OURS,
    RECONSTRUCTION,
    TAXONOMY,
    MethodInfo,
    describe_policy,
    find_method,
    find_preset,
    make_own_policy,
    make_policy,
    method_status,
    parse_policy,
    preset_family,
    split_policy,
)
from unmask.methods.remdm import ReMDMLLaDA, ReMDMSampler
from unmask.methods.soar import SOAR
from unmask.methods.swordsman import Swordsman
from unmask.methods.vsb import VSB
from unmask.methods.wino import WINO
