"""What starts an offer, in the words of its engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import serving_launch
from rackmodel.serving.offers import Offer, Widths
from rackmodel.serving.steps import Deployment


def test_flags_say_the_drafts_and_the_exchange_that_were_asked_for() -> None:
    sets = ["accelerators=8", "profile.collectives.exchange=deepep", "profile.collectives.exchange_mode=low_latency"]
    plain = service_of("dgx_h200", "deepseek_v3_decoder", sets, "sglang", (1024.0, 1024.0, 0.0))
    offer = Offer(Deployment(attention_data=8, expert=8), Widths(), 1, 64.0, 8192, 64.0, False, {})

    def said(engine: str, count: int, by: str = "") -> str:
        return "\n".join(serving_launch(engine, "some/model", offer, 2048, replace(plain, drafted=count, draft_model=by)).lines())

    assert """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'""" in said("vllm", 2)
    assert """'{"method": "ngram", "num_speculative_tokens": 2}'""" in said("vllm", 2, "free")
    assert """'{"model": "llama3_8b_decoder", "num_speculative_tokens": 3}'""" in said("vllm", 3, "llama3_8b_decoder")
    assert "--all2all-backend deepep_low_latency" in said("vllm", 0)
    assert "--moe-a2a-backend=deepep" in said("sglang", 0)
    assert "--deepep-mode=low_latency" in said("sglang", 0)
    assert "--speculative-num-draft-tokens=3" in said("sglang", 2)
    assert "2 drafts by what is looked up have no argument here" in said("sglang", 2, "free")
    assert "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2}" in said("trtllm", 2)
    assert "exchange of tokens by deepep, mode low_latency, has no argument here" in said("trtllm", 0)
    assert "speculative" not in said("vllm", 0)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("vllm", ("--max-num-seqs 63",)),
        ("trtllm", ("--max_batch_size 63", "max_batch_size: 63")),
        ("sglang", ("--max-running-requests=500", "--cuda-graph-max-bs=63")),
    ],
)
def test_flags_count_requests_of_each_rank_as_their_engine_does(engine: str, says: tuple[str, ...]) -> None:
    """500 requests of eight ranks of attention data: SGLang deals all of them out, its graphs are of a rank."""
    offer = Offer(Deployment(attention_data=8, expert=8), Widths(), 1, 500.0, 8192, 500.0, False, {})
    text = "\n".join(serving_launch(engine, "some/model", offer, 2048).lines())
    assert all(one in text for one in says)


def test_flags_ask_for_no_longer_context_than_the_model_has() -> None:
    """4,000 tokens and 200 of a template are more than the 4,096 of Llama 2."""
    offer = Offer(Deployment(tensor=8), Widths(), 1, 8.0, 8192, 8.0, False, {})
    service = service_of("dgx_h100", "llama2_70b_decoder", (), "vllm", (3000, 1000, 0.0))
    said = {length: "\n".join(serving_launch("vllm", "m", offer, length, service).lines()) for length in (3000, 4000)}
    assert "--max-model-len 3200" in said[3000]
    assert "--max-model-len 4096" in said[4000]


@pytest.mark.parametrize(("of", "chunk"), [("sglang", 8192), ("vllm", 65536)])
def test_flags_say_a_chunk_of_all_ranks_where_their_engine_deals_it_out(of: str, chunk: int) -> None:
    """8,192 tokens of SGLang are of eight ranks together, as its flag is; of vLLM they are of each."""
    offer = Offer(Deployment(attention_data=8, expert=8), Widths(), 1, 500.0, 8192, 500.0, False, {})
    service = service_of("dgx_h100", "gpt_oss_120b_decoder", (), of, (1024, 1024, 0.0))
    assert f"--chunked-prefill-size={chunk}\n" in "\n".join(serving_launch("sglang", "m", offer, 2048, service).lines()).replace(" ", "\n")


@pytest.mark.parametrize(
    ("engine", "widths", "says", "notes"),
    [
        ("vllm", Widths("bf16", "bf16"), ("--dtype bfloat16", "--kv-cache-dtype bfloat16"), 0),
        ("vllm", Widths("nvfp4", "fp8"), ("--quantization modelopt_fp4", "--kv-cache-dtype fp8"), 0),
        ("vllm", Widths("int4", "int8"), (), 2),
        ("sglang", Widths("fp8", "fp8"), ("--quantization=fp8", "--kv-cache-dtype=fp8_e4m3", "--chunked-prefill-size=65536"), 0),
        ("trtllm", Widths("fp8", "bf16"), ("kv_cache_config: {dtype: auto}",), 1),
        ("trtllm", Widths("", "fp8"), ("kv_cache_config: {dtype: fp8}",), 0),
    ],
)
def test_flags_say_formats_in_the_words_of_their_engine(engine: str, widths: Widths, says: tuple[str, ...], notes: int) -> None:
    """And what it takes from its checkpoint alone is a note. SGLang deals a chunk out over its eight ranks of attention data."""
    offer = Offer(Deployment(attention_data=8, expert=8), widths, 1, 500.0, 8192, 500.0, False, {})
    found = serving_launch(engine, "some/model", offer, 2048)
    text = "\n".join(found.lines())
    assert all(one in text for one in says)
    assert sum("they are the checkpoint's" in one for one in found.notes) == notes
    assert all(word not in text for word in ("quantization bf16", "dtype bf16", "dtype=fp8\n", "quantization int4"))


def test_flags_of_another_engine_than_the_priced_one_say_so() -> None:
    """(Figures of vLLM stood above TensorRT-LLM's arguments without a word.)"""
    service = service_of("dgx_h100", "llama3_8b_decoder", [], "vllm", (1024.0, 1024.0, 0.0))
    offer = Offer(Deployment(), Widths(), 8, 8.0, 8192, 8.0, False, {})
    said = {name: serving_launch(name, "m", offer, 2048, service).notes[1:] for name in ("vllm", "trtllm")}
    assert said == {"vllm": (), "trtllm": ("priced as vllm runs it: --engine trtllm prices this one",)}


@pytest.mark.parametrize(
    ("engine", "degrees", "note"),
    [
        ("vllm", {"tensor": 8, "expert": 4, "expert_tensor": 2}, "experts over 4 of 8 ranks have no argument here"),
        ("trtllm", {"tensor": 4, "attention_data": 2, "expert": 8}, "2 ranks of attention data of 4 tensor ranks each have no"),
        ("sglang", {"tensor": 4, "attention_data": 2, "expert": 8}, ""),
        ("vllm", {"tensor": 4, "attention_data": 2, "expert": 8}, ""),
        ("trtllm", {"attention_data": 8, "expert": 8}, ""),
    ],
)
def test_flags_say_which_degrees_they_would_start_otherwise(engine: str, degrees: dict[str, int], note: str) -> None:
    """TensorRT-LLM's attention_dp has a rank of data for each accelerator, whatever was priced; vLLM deals experts to all ranks or none."""
    offer = Offer(Deployment(**degrees), Widths(), 1, 500.0, 8192, 500.0, False, {})
    notes = serving_launch(engine, "some/model", offer, 2048).notes[1:]
    assert (note in notes[0]) if note else notes == ()
