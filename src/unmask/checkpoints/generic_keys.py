"""Keys that any config.json may hold and that change no forward pass of this package's networks.

The generic configuration of Hugging Face transformers (`PretrainedConfig`), versions 2 to 5. Left out on purpose, so
that they count as unknown keys: what changes a network when it is set (quantization_config, pruned_heads, is_decoder,
is_encoder_decoder, add_cross_attention, cross_attention_hidden_size, tie_encoder_decoder, tie_word_embeddings,
rope_scaling, rope_parameters). Most are null, false or empty in files, and then they are no obstacle.
"""

BOOKKEEPING = frozenset(
    [
        "_auto_class",
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "auto_map",
        "base_model_prefix",
        "model_type",
        "name_or_path",
        "transformers_version",
        "transformers_weights",
        "unsloth_fixed",
        "unsloth_version",
    ]
)
"""Written by the tools that saved a checkpoint."""

TOKENS = frozenset(
    [
        "bos_token_id",
        "decoder_start_token_id",
        "pad_token_id",
        "prefix",
        "sep_token_id",
        "tokenizer_class",
    ]
)
"""Ids that no mask and no end is read from: the tokenizer and the family's own keys say those."""

PROGRAM = frozenset(
    [
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_attn_implementation_internal",
        "attn_implementation",
        "_experts_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "gradient_checkpointing",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "tf_legacy_loss",
        "torch_dtype",
        "torchscript",
        "use_bfloat16",
        "use_cache",
        "use_return_dict",
        "xla_device",
    ]
)
"""How their program runs the network: kernels, types, what a call returns."""

LABELS = frozenset(
    [
        "finetuning_task",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "task_specific_params",
    ]
)
"""Of classifiers."""

GENERATION = frozenset(
    [
        "bad_words_ids",
        "begin_suppress_tokens",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "generation_config",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "min_length",
        "min_new_tokens",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "suppress_tokens",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    ]
)
"""How their program decodes; here the policy says it."""

GENERIC = BOOKKEEPING | TOKENS | PROGRAM | LABELS | GENERATION
