"""What is published of models: how many weights they have, and what a token of a cache takes."""

from __future__ import annotations

PUBLISHED = {
    # RECALLED: totals of the checkpoints' safetensors index, as the model pages show them; vision encoders and prediction heads apart
    "gpt2": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "neox_20b": 20_554_567_680,  # GPT-NeoX-20B (arXiv 2204.06745), section 2
    "phi2": 2_779_683_840,
    "phi3_mini": 3_821_079_552,
    "phi4": 14_659_507_200,
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
    "llama32_1b": 1_235_814_400,
    "llama32_3b": 3_212_749_824,
    "llama4_scout": 107.8e9,  # 109 B with its vision encoder of 0.9 B
    "llama4_maverick": 400.7e9,  # 402 B with its vision encoder of 0.9 B
    "mistral_7b": 7_241_732_096,
    "mixtral_8x7b": 46_702_792_704,
    "mixtral_8x22b": 140_630_071_296,
    "qwen2_7b": 7_615_616_512,
    "qwen25_72b": 72_706_203_648,
    "qwen2_57b_a14b": 57_409_072_128,
    "qwen3_8b": 8_190_735_360,
    "qwen3_32b": 32_762_123_264,
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_235b": 235_093_634_560,
    "qwen3_next_80b": 79.7e9,  # "80B"; 81.3 B with its prediction layer
    "qwen35_397b": 397e9,  # the model's name
    "deepseek_v2": 235_741_434_880,
    "deepseek_v3": 671e9,  # DeepSeek-V3 (arXiv 2412.19437), section 4.2
    "kimi_k2": 1_026_408_232_448,
    "kimi_k25": 1_026_408_232_448,
    "minimax_m2": 228_703_644_928,
    "glm5": 744e9,  # the model's page
    "gpt_oss_120b": 116.83e9,  # gpt-oss model card (arXiv 2508.10925), table 1
    "gpt_oss_20b": 20.91e9,
    "gemma_7b": 8_537_680_896,
    "gemma2_9b": 9_241_705_984,
    "gemma3_27b": 27_009_346_304,
    "minitron_4b": 4.19e9,
    "minitron_8b": 8.27e9,
    # configs with every key that is published
    "mistral_7b_v01": 7_241_732_096,
    "mistral_small_31": 23_572_403_200,
    "phi35_moe": 41_873_153_344,
    "phi4_mini": 3_836_021_760,
    "command_r_plus": 103_810_674_688,
    "command_a": 111_057_580_032,
    "olmo2_32b": 32_234_279_936,
    "olmo3_32b": 32_234_279_936,
    "olmoe": 6_919_161_856,
    "falcon_7b": 6_921_720_704,
    "falcon_40b": 41_303_293_952,
    "granite33_8b": 8_170_848_256,
    "granite_3b_a800m": 3.299e9,
    "seed_oss_36b": 36_151_104_512,
    "dots1": 142_774_381_696,
    "ernie45_21b": 21_825_437_888,
    "hunyuan_a13b": 80_393_183_232,
    "glm4_32b": 32.57e9,
    "exaone4_32b": 32.0e9,
    "gemma3_4b": 3_880_099_328,
    "gemma3_1b": 999_885_952,
    "gemma2_27b": 27_227_128_320,
    "deepseek_v2_lite": 15_706_484_224,
    "qwen25_vl_72b": 72_706_203_648,
    "starcoder2_15b": 15_957_889_024,
    "minimax_text_01": 456e9,  # MiniMax-01 (arXiv 2501.08313), abstract
    "nemotron_h_8b": 8.1e9,
    "nemotron3_nano": 31.6e9,  # its model card
    "mamba2_2_7b": 2.7e9,
    "falcon_mamba_7b": 7_272_665_088,
    "jamba_mini": 51.57e9,
    "qwen3_vl_235b": 235_093_634_560,
    "bamba_9b": 9.78e9,
    "exaone35_7_8b": 7_818_448_896,
    "deepseek_moe_16b": 16_375_728_128,
    "granite4_micro": 3.4e9,
    "minicpm_2b": 2_724_880_896,
    "internlm3_8b": 8.8e9,
    "stablelm_3b": 2_795_443_200,
    "chatglm3_6b": 6_243_584_000,
    "gptj_6b": 6_053_381_344,
    "bloom_176b": 176_247_271_424,  # BLOOM (arXiv 2211.05100), table 3
    "ling_lite": 16.8e9,  # Ling (arXiv 2503.05139), table 1
    "ling_mini2": 16.26e9,  # github.com/inclusionAI/Ling-V2: 16 B, of which 0.789 without embeddings work for a token
    "ling_1t": 1e12,  # its model card, as its name
    "llama1_33b": 32_528_943_616,
    "llama1_65b": 65_285_660_672,
    "codellama_34b": 33_743_970_304,
    "yi_34b": 34_388_917_248,
    "tinyllama_1b": 1_100_048_384,
    "deepseek_67b": 67.42e9,
    "olmo_7b": 6_888_095_744,
    "qwen_72b": 72_288_169_984,
    "internlm_20b": 20_087_393_280,
    "mistral_nemo_12b": 12_247_782_400,
    "codestral_22b": 22_247_282_688,
    "mistral_large_123b": 122_610_069_504,
    "qwen25_0_5b": 494_032_768,
    "qwen25_1_5b": 1_543_714_304,
    "qwen25_3b": 3_085_938_688,
    "qwen25_14b": 14_770_033_664,
    "qwen25_32b": 32_763_876_352,
    "qwen3_0_6b": 596_049_920,
    "qwen3_1_7b": 1_720_574_976,
    "qwen3_4b": 4_022_468_096,
    "qwen3_14b": 14_768_307_200,
    "qwen3_coder_480b": 480_154_875_392,
    "gemma3_12b": 11_765_788_416,
    "gemma2_2b": 2_614_341_888,
    "gemma_2b": 2_506_172_416,
    "phi3_medium": 13_960_238_080,
    "olmo2_7b": 7_298_617_344,
    "olmo2_13b": 13_716_198_400,
    "falcon_180b": 179_522_565_120,
    "nemotron_nano2_12b": 12_310_001_152,
    "nemotron_nano2_9b": 8_888_227_328,
    "deepseek_v32": 671.9e9,  # DeepSeek V3's, with 61 indexers of 14 million
    "glm47_flash": 30e9,
    "opt_1_3b": 1_315_758_080,
    "opt_6_7b": 6_658_473_984,
    "opt_13b": 12_853_473_280,
    "opt_30b": 29_974_540_288,
    "opt_66b": 65_717_006_336,
    "opt_175b": 174.6e9,
    "palm_8b": 8.63e9,  # PaLM (arXiv 2204.02311), table 1
    "palm_62b": 62.5e9,
    "palm_540b": 540.35e9,
    "smollm2_1_7b": 1_711_376_384,
    "bloom_7b1": 7_069_016_064,
    "pythia_12b": 11_846_072_320,
    "cerebras_gpt_13b": 12_853_454_848,
    "nemotron4_15b": 15.6e9,
    "nemotron4_340b": 341e9,
    # RECALLED: totals of the safetensors index (nobody's was read); where a number has no more than four digits, the model's card or paper,
    # SOURCED where it says so
    "apertus_8b": 8_053_338_176,
    "apertus_70b": 70.6e9,
    "falcon_h1_0_5b": 521_411_104,
    "falcon_h1_7b": 7.59e9,  # Falcon-H1 (arXiv 2507.22448), table 3
    "falcon_h1_34b": 33.6e9,
    "lfm2_1_2b": 1_170_340_608,
    "lfm2_8b_a1b": 8_339_929_856,  # SOURCED: 8.3 billion (huggingface.co/docs/transformers, model_doc/lfm2_moe)
    "longcat_flash": 560e9,  # SOURCED: LongCat-Flash (arXiv 2509.01322), abstract
    "kimi_linear_48b": 49_122_681_728,  # its name says 48
    "mimo_v2_flash": 309e9,  # MiMo-V2-Flash (arXiv 2601.02780), abstract
    "step3": 316e9,  # Step-3 (arXiv 2507.19427), table 1: 321 with its encoder of images
    "step35_flash": 196.81e9,  # its model card
    "qwen35_27b": 26.9e9,  # 27.8 with its encoder of images and its prediction layer
    "k_exaone_236b": 236e9,  # K-EXAONE (arXiv 2601.01739), table 1
    "trinity_mini": 26.12e9,  # SOURCED: 26 billion (huggingface.co/arcee-ai/Trinity-Mini, model card)
    "solar_open_100b": 102.6e9,  # its model card; SOURCED: 103 billion in another format (huggingface.co/AaryanK/Solar-Open-100B-GGUF)
    "flex_olmo_33b": 33.27e9,  # SOURCED: 33 billion (huggingface.co/shanearora/Flex-reddit-2x7B-1T, its first card)
    "cwm_32b": 32.6e9,  # SOURCED: 32 billion (Meta FAIR on its release)
    "dbrx": 131_596_523_520,  # RECALLED: its model page; 132 billion by its announcement
    "mpt_7b": 6_649_286_656,  # RECALLED: its model page
    "mpt_30b": 29.96e9,
    "starcoder_15b": 15_517_456_384,  # RECALLED: its model page; 15.5 billion by StarCoder (arXiv 2305.06161), abstract
    "persimmon_8b": 9.4e9,  # RECALLED: 9.3 billion by its announcement, whose head is larger than others'
    "minicpm3_4b": 4.07e9,  # RECALLED: its model page
    "mimo_7b": 7.61e9,  # RECALLED: 7.83 with the layer that predicts one token further
    "mistral_small_4": 119e9,  # its name, Mistral-Small-4-119B-2603
    "gemma4_31b": 30.7e9,  # SOURCED: apxml.com/models/gemma-4-31b
    "gemma4_26b_a4b": 25.2e9,  # RECALLED: its model card
    "gemma3n_e4b": 6.87e9,  # RECALLED: its language model in GGUF, which has keys' weights of layers that read others' caches, too
    "gemma3n_e2b": 4.46e9,  # RECALLED: the same
    "gemma4_e2b": 4.63e9,  # SOURCED: 5.1 billion with encoders of images and sound (dev.colaberry.ai, gemma-4-e2b), of 0.15 and 0.3
    "bitnet_2b": 2.41e9,  # RECALLED: its model page
    "hy3_preview": 295e9,  # SOURCED: its model card (cnb.cool/ai-models/tencent/Hy3-preview)
    "olmo_hybrid_7b": 7.43e9,  # RECALLED: its model page; 7 in its name
    "deepseek_v4_flash": 284e9,  # SOURCED: its model card; 284.3 without what predicts one token further
    "deepseek_v4_pro": 1573e9,  # its model card says 1.6 trillion, which 26 billion of a layer that predicts one token further are part of
    "nemotron_super_49b": 49_867_145_216,  # RECALLED: its model page
    "nemotron_ultra_253b": 253_401_268_224,  # RECALLED: its model page; 253 in its name
    "rwkv7_2_9b": 2_947_735_040,  # RWKV-7 (arXiv 2503.14456), table 2
}

CACHED = {
    # bytes a token in bf16: layers x heads x (key + value elements) x 2
    "llama3_8b": 131_072,
    "llama3_70b": 327_680,
    "llama3_405b": 516_096,
    "deepseek_v3": 70_272,  # DeepSeek-V3: 61 x (512 + 64) x 2
    "qwen3_32b": 262_144,
    "gpt_oss_120b": 36_864,  # of the 18 layers without a window
    "mistral_7b_v01": 0,  # every layer has one
    "gemma2_27b": 23 * 16 * 128 * 2 * 2,  # every other layer has none
    "gemma3_1b": 4 * 256 * 2 * 2,  # 22 of 26 layers have one
    "command_a": 16 * 8 * 128 * 2 * 2,
    "olmo3_32b": 16 * 8 * 128 * 2 * 2,
    "deepseek_v2_lite": 27 * 576 * 2,
    "minimax_text_01": 10 * 8 * 128 * 2 * 2,  # 70 layers keep matrices
    "nemotron3_nano": 6 * 2 * 128 * 2 * 2,
    "mamba2_2_7b": 0,
    "jamba_mini": 4 * 8 * 128 * 2 * 2,
    "deepseek_v32": 61 * (576 * 2 + 128),  # DeepSeek V3's, and keys of an indexer in 8 bits
    "glm46": 92 * 8 * 128 * 2 * 2,
    "qwen3_next_80b": 12 * 2 * 256 * 2 * 2,  # 36 of 48 layers keep states
    "llama4_scout": 12 * 8 * 128 * 2 * 2,  # 36 of 48 layers have chunks of 8,192
    "gemma3_12b": 8 * 8 * 256 * 2 * 2,
    "nemotron_nano2_12b": 6 * 8 * 128 * 2 * 2,
    "palm_540b": 118 * 1 * 256 * 2 * 2,  # one head of keys and values
    "opt_175b": 96 * 96 * 128 * 2 * 2,
    "apertus_70b": 80 * 8 * 128 * 2 * 2,
    "falcon_h1_34b": 72 * 4 * 128 * 2 * 2,  # attention stands beside the mixer of every layer
    "lfm2_1_2b": 6 * 8 * 64 * 2 * 2,  # 10 of 16 layers keep two tokens
    "lfm2_8b_a1b": 6 * 8 * 64 * 2 * 2,
    "longcat_flash": 56 * 576 * 2,  # a layer has two of attention
    "kimi_linear_48b": 7 * 576 * 2,  # 20 of 27 layers keep states
    "mimo_v2_flash": 9 * 4 * (192 + 128) * 2,  # 39 of 48 layers have windows
    "step3": 61 * 256 * 2 * 2,  # one head of keys and values
    "step35_flash": 12 * 8 * 128 * 2 * 2,
    "qwen35_27b": 16 * 4 * 256 * 2 * 2,
    "k_exaone_236b": 12 * 8 * 128 * 2 * 2,
    "rwkv7_2_9b": 0,
    "dbrx": 40 * 8 * 128 * 2 * 2,
    "starcoder_15b": 40 * 128 * 2 * 2,  # one head of keys and values
    "minicpm3_4b": 62 * (256 + 32) * 2,
    "mistral_small_4": 36 * (256 + 64) * 2,
    "gemma4_31b": 10 * 4 * 512 * 2 * 2,  # 50 of 60 layers have windows
    "gemma4_26b_a4b": 5 * 2 * 512 * 2 * 2,
    "gemma3n_e4b": 4 * 2 * 256 * 2 * 2,  # 16 layers of the first 20 have windows, 15 read others' caches
    "gemma4_e2b": 3 * 512 * 2 * 2,
    "hy3_preview": 80 * 8 * 128 * 2 * 2,
    "olmo_hybrid_7b": 8 * 30 * 128 * 2 * 2,  # 24 of 32 layers keep states
    "deepseek_v4_flash": 21 * (512 * 2 + 128) / 4 + 20 * 512 * 2 / 128,  # two layers have windows alone; an indexer's keys in 8 bits
    "deepseek_v4_pro": 30 * (512 * 2 + 128) / 4 + 31 * 512 * 2 / 128,
    "nemotron_super_49b": 49 * 8 * 128 * 2 * 2,  # 31 of 80 layers have no attention
    "nemotron_ultra_253b": 64 * 8 * 128 * 2 * 2,  # 98 of 162 have none
    "trinity_mini": 8 * 4 * 128 * 2 * 2,
}
