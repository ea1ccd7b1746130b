"""Networks behind one contract: tokens in, logits of the wanted slots out."""

from unmask.models.block_cache import BlockCache
from unmask.models.codec import Codec, LetterCodec, Prompt
from unmask.models.cuda_graphs import CudaGraph, GraphCache, NotGraphable, build_graph
from unmask.models.exact import ExactDenoiser, JointDistribution
from unmask.models.execution import compile_layers
from unmask.models.guidance import GuidedDenoiser
from unmask.models.network import Network, default_readout_layers, pad_input
from unmask.models.transformer import StackedLinear, Transformer, TransformerSpec
