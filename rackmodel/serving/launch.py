"""The arguments that start an offer under vLLM, TensorRT-LLM or SGLang.

Names checked against the scripts of SemiAnalysisAI/InferenceX (benchmarks/70b_fp8_h100_slurm.sh, dsr1_fp4_b200_trt.sh, dsr1_fp8_b200.sh,
single_node/glm5_fp8_b200.sh). A replica is one server; what spreads requests over replicas is not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.inputs.library import SUFFIXES
from rackmodel.model.exchanges import GATHERED
from rackmodel.report.launch.arguments import Launch
from rackmodel.serving.engine import engine_facts
from rackmodel.serving.offers import FREE, Offer, Offered, Service, Widths, workload_of
from rackmodel.serving.pool_search import PoolsOffer
from rackmodel.serving.steps import Deployment

CONTEXT_SLACK = 200
"""Tokens of a context beyond prompt and output: a chat template's. Source: InferenceX, MAX_MODEL_LEN."""


WEIGHTS = {
    "vllm": {"bf16": "--dtype bfloat16", "fp16": "--dtype float16", "fp8": "--quantization fp8", "mxfp4": "--quantization mxfp4"}
    | {"nvfp4": "--quantization modelopt_fp4"},
    "trtllm": {},
    "sglang": {"bf16": "--dtype=bfloat16", "fp16": "--dtype=float16", "fp8": "--quantization=fp8", "mxfp4": "--quantization=mxfp4"}
    | {"nvfp4": "--quantization=modelopt_fp4", "int8": "--quantization=w8a8_int8"},
}
"""Engine → format of weights → what says it. Source: vllm-project/vllm, model_executor/layers/quantization, QuantizationMethods;
sgl-project/sglang, srt/server_args.py, QUANTIZATION_CHOICES; TensorRT-LLM takes its checkpoint's."""
CACHES = {
    "vllm": {"": "", "bf16": "bfloat16", "fp8": "fp8"},
    "trtllm": {"": "auto", "bf16": "auto", "fp16": "auto", "fp8": "fp8", "nvfp4": "nvfp4"},
    "sglang": {"": "", "bf16": "bf16", "fp8": "fp8_e4m3", "mxfp4": "fp4_e2m1"},
}
"""Engine → format of caches → its word. Source: vllm-project/vllm, config/cache.py, CacheDType; sgl-project/sglang, srt/server_args.py,
--kv-cache-dtype; NVIDIA/TensorRT-LLM, pull request 11487 (auto, fp8, nvfp4; auto is the model's own)."""
POOLS = {
    "vllm": """--kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'""",
    "sglang": "--disaggregation-mode {role} --disaggregation-transfer-backend nixl",
}
"""Engine → what makes a server a worker of a pool. Source: ishandhanani/srt-slurm, recipes (SGLang); vLLM documentation, RECALLED."""


def launches_of(name: str, model: str, offer: Offered, length: float, service: Service | None = None) -> tuple[Launch, ...]:
    """What starts a replica, or a worker of each pool. length: tokens of prompt and output · service: whose drafts and exchange of tokens
    are said, too. Raises InputError for another engine's name."""
    if isinstance(offer, Offer):
        return (serving_launch(name, model, offer, length, service),)
    assert isinstance(offer, PoolsOffer)
    found = []
    for role, pool in (("prefill", offer.prompts), ("decode", offer.decodes)):
        one = serving_launch(name, model, offer.worker(pool), length, service)
        more = (POOLS[name].format_map({"role": role}),) if name == "sglang" else (POOLS[name],) if name in POOLS else ()
        config = one.config + "cache_transceiver_config: {backend: UCX}\n" if one.config else one.config
        note = f"pool of {role}: {_many(pool.count, 'worker')} of {_many(pool.deployment.accelerators, 'accelerator')}"
        found.append(replace(one, notes=(note, *one.notes[1:]), arguments=(*one.arguments, *more), config=config))
    return tuple(found)


def serving_launch(name: str, model: str, offer: Offer, length: float, service: Service | None = None) -> Launch:
    """The arguments that start one replica. length: tokens of prompt and output · service: as of `launches_of`. Raises InputError for
    another engine's name."""
    if name not in SERVERS:
        raise InputError(f"no serving engine called '{name}'", path="--flags", known=tuple(SERVERS), given=name)
    context = int(length) + CONTEXT_SLACK
    if service is not None:
        serving = workload_of(service, Widths()).serving
        context = min(context, (serving and serving.positions) or context)  # more than the model has is refused
        if engine_facts(service.profile).budget_of == "replica":
            offer = replace(offer, budget=max(offer.budget // offer.deployment.attention_data, 1))
    arguments, config = SERVERS[name](model, offer, context)
    more, lines, cannot = _asked(name, offer, service) if service is not None else ([], "", [])
    arguments, config = [*arguments, *more], config + lines
    config_name = "engine.yaml" if config else ""
    other = [*_priced_otherwise(name, service), *_formats_of_the_checkpoint(name, offer), *_layouts_without(name, offer.deployment)]
    size = _many(offer.deployment.accelerators, "accelerator")
    head = f"{_many(offer.replicas, 'replica')} of {size}, {_many(offer.clients, 'client')} each"
    own = [f"{model} is a file of rackmodel: put the checkpoint's path or name in its place"] if model.endswith(SUFFIXES) else []
    notes = (head, *other, *cannot, *own)
    return Launch(name, notes, tuple(arguments), config_name, config, needs_config=bool(config))


def _many(count: float, what: str) -> str:
    return f"{count:g} {what}{'s' if count != 1 else ''}"


def _priced_otherwise(name: str, service: Service | None) -> list[str]:
    """That the figures are another engine's."""
    priced = "" if service is None else service.profile.name
    of = priced.partition("_")[0]
    return [f"priced as {priced} runs it: --engine {name} prices this one"] if of in {*SERVERS, "wafer", "lpu"} - {name} else []


def _formats_of_the_checkpoint(name: str, offer: Offer) -> list[str]:
    """Formats that an engine takes from its checkpoint alone."""
    said = {"weights": (offer.widths.weight, WEIGHTS[name]), "caches": (offer.widths.kv_cache, CACHES[name])}
    return [
        f"{what} in {word} have no argument here: they are the checkpoint's" for what, (word, own) in said.items() if word not in {"", *own}
    ]


def _layouts_without(name: str, one: Deployment) -> list[str]:
    """Degrees that an engine's arguments do not say, so that they start another deployment.

    Source: vllm-project/vllm, config/parallel.py (experts are dealt to all ranks of a stage or to none); NVIDIA/TensorRT-LLM, mapping.py
    (attention_dp has as many ranks of data as tp_size). RECALLED both.
    """
    found = []
    if name == "vllm" and 1 < one.expert < one.stage:
        found += [f"experts over {one.expert} of {one.stage} ranks have no argument here: it deals them to all"]
    if name == "trtllm" and one.attention_data > 1 and one.tensor > 1:
        ranks = f"{one.attention_data} ranks of attention data of {one.tensor} tensor ranks each"
        found += [f"{ranks} have no argument here: its attention has {one.attention_data * one.tensor} of one"]
    if name == "trtllm" and one.context > 1:
        found += [f"{one.context} ranks of context have no argument here"]
    if name == "trtllm" and one.prompt_context > 1:
        found += [f"{one.prompt_context} ranks that share out prompts have no argument here"]
    return found


def _asked(name: str, offer: Offer, service: Service) -> tuple[list[str], str, list[str]]:
    """(arguments, lines of the file, what has no argument) of drafts and of an exchange of tokens.

    Source: --speculative-config (vllm-project/vllm, issue 52069), speculative_config (NVIDIA/TensorRT-LLM, tech_blog2), --speculative-*,
    --moe-a2a-backend and --deepep-mode (ishandhanani/srt-slurm, recipes/gb200-fp8/1k1k), --all2all-backend (docs.vllm.ai, expert parallel
    deployment), --decode-context-parallel-size (docs.vllm.ai, vllm-neuron), --dcp-size (docs.sglang.io, dcp),
    --prefill-context-parallel-size (vllm-project/vllm, pull request 28723), --attn-cp-size, --enable-prefill-cp and --cp-strategy
    (docs.sglang.io, prefill_cp; sgl-project/sglang, pull request 27928), --moe-dense-tp-size (pull request 33226); n-grams RECALLED.
    """
    arguments, lines, cannot = _drafting(name, service) if service.drafted else ([], "", [])
    called = service.profile.collectives
    unasked = called is None or called.exchange is None or GATHERED in called.exchange.split()  # (what engines do)
    if called is None or unasked or offer.deployment.attention_data == 1:
        return arguments, lines, cannot
    mode = called.exchange_mode
    if called.exchange == "deepep" and name == "sglang":
        arguments += ["--moe-a2a-backend=deepep", f"--deepep-mode={mode}"]
    elif called.exchange == "deepep" and name == "vllm" and mode != "auto":
        arguments += [f"--all2all-backend deepep_{'high_throughput' if mode == 'normal' else mode}"]
    else:
        cannot = [*cannot, f"an exchange of tokens by {called.exchange}, mode {mode}, has no argument here"]
    return arguments, lines, cannot


def _drafting(name: str, service: Service) -> tuple[list[str], str, list[str]]:
    """The same of drafts: by the model's module, by another model, or looked up."""
    count, by = service.drafted, service.draft_model
    module = not by and read_workload(service.workload, service.sets).module is not None
    if name == "vllm":
        how = '"method": "mtp"' if module else '"method": "ngram"' if by in ("", FREE) else f'"model": "{by}"'
        return [f"--speculative-config '{{{how}, \"num_speculative_tokens\": {count}}}'"], "", []
    if name == "trtllm" and module:
        return [], f"speculative_config: {{decoding_type: MTP, num_nextn_predict_layers: {count}}}\n", []
    if name == "sglang" and (module or by not in ("", FREE)):
        draft = [] if module else [f"--speculative-draft-model-path={by}"]
        steps = f"--speculative-num-steps={count} --speculative-eagle-topk=1 --speculative-num-draft-tokens={count + 1}"
        return ["--speculative-algorithm=EAGLE" if module else "--speculative-algorithm=STANDALONE", *draft, steps], "", []
    return [], "", [f"{count} drafts by {by if by not in ('', FREE) else 'what is looked up'} have no argument here"]


def _vllm(model: str, offer: Offer, context: int) -> tuple[list[str], str]:
    one = offer.deployment
    found = [f"vllm serve {model}", f"--tensor-parallel-size {one.tensor}"]
    found += [f"--pipeline-parallel-size {one.pipeline}"] if one.pipeline > 1 else []
    found += [f"--data-parallel-size {one.attention_data}"] if one.attention_data > 1 else []
    found += [f"--decode-context-parallel-size {one.context}"] if one.context > 1 else []
    found += [f"--prefill-context-parallel-size {one.prompt_context}"] if one.prompt_context > 1 else []
    found += ["--enable-expert-parallel"] if one.expert > 1 else []
    sequences = min(_sequences(offer, one.attention_data), offer.budget)  # (more are refused: vllm/config/scheduler.py)
    found += [f"--max-num-batched-tokens {offer.budget}", f"--max-num-seqs {sequences}"]
    found += [f"--max-model-len {context}"]
    cache = CACHES["vllm"].get(offer.widths.kv_cache)
    found += [WEIGHTS["vllm"][offer.widths.weight]] if offer.widths.weight in WEIGHTS["vllm"] else []
    found += [f"--kv-cache-dtype {cache}"] if cache else []
    return found, ""


def _trtllm(model: str, offer: Offer, context: int) -> tuple[list[str], str]:
    one = offer.deployment
    stage = one.tensor * one.attention_data
    found = [f"trtllm-serve {model}", f"--tp_size {stage}", f"--pp_size {one.pipeline}", f"--ep_size {one.expert}"]
    found += [f"--max_num_tokens {offer.budget}", f"--max_batch_size {_sequences(offer, one.attention_data)}", f"--max_seq_len {context}"]
    found += ["--extra_llm_api_options engine.yaml"]
    lines = [f"cuda_graph_config: {{enable_padding: true, max_batch_size: {_sequences(offer, one.attention_data)}}}"]
    lines += [f"enable_attention_dp: {str(one.attention_data > 1).lower()}"]
    lines += [f"kv_cache_config: {{dtype: {CACHES['trtllm'].get(offer.widths.kv_cache, 'auto')}}}"]
    return found, "\n".join(lines) + "\n"


def _sglang(model: str, offer: Offer, context: int) -> tuple[list[str], str]:
    one = offer.deployment
    found = [f"python3 -m sglang.launch_server --model-path={model}", f"--tensor-parallel-size={one.stage}"]
    found += [f"--pipeline-parallel-size={one.pipeline}"] if one.pipeline > 1 else []
    found += [f"--data-parallel-size={one.attention_data}", "--enable-dp-attention"] if one.attention_data > 1 else []
    found += [f"--expert-parallel-size={one.expert}"] if one.expert > 1 else []
    found += [f"--dcp-size={one.context}"] if one.context > 1 else []
    if one.prompt_context > 1:
        found += [f"--attn-cp-size={one.prompt_context}", "--enable-prefill-cp", "--cp-strategy=zigzag"]
        found += ["--moe-dense-tp-size=1"] if one.tensor == 1 else []
    found += [f"--chunked-prefill-size={offer.budget * one.attention_data}"]  # which it deals out over ranks (server_args.py)
    found += [f"--max-running-requests={_sequences(offer)}"]
    found += [f"--cuda-graph-max-bs={_sequences(offer, one.attention_data)}", f"--context-length={context}"]
    cache = CACHES["sglang"].get(offer.widths.kv_cache)
    found += [WEIGHTS["sglang"][offer.widths.weight]] if offer.widths.weight in WEIGHTS["sglang"] else []
    found += [f"--kv-cache-dtype={cache}"] if cache else []
    return found, ""


def _sequences(offer: Offer, ranks: int = 1) -> int:
    """Requests at once; of each of so many ranks of attention data, where the engine counts them so (`sequences_of` of its profile). Of
    those that come at a rate a Poisson number is there: four of its deviations more than in the mean."""
    most = offer.clients if offer.rate is None else offer.clients + 4.0 * offer.clients**0.5
    return max(int(-(-most // ranks)), 1)


SERVERS: dict[str, Callable[[str, Offer, int], tuple[list[str], str]]] = {"vllm": _vllm, "trtllm": _trtllm, "sglang": _sglang}
"""Engine → its arguments and the file that they need."""
