# config.json and generation_config.json as checkpoints have them: old and new spellings of rope, nested text configs with tensors of a model that sees,
# tied heads, lists of ends, advice on sampling; and fields that are missing or of another kind. Made-up folders. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/configs.py" <<'END'
import json, os, shutil, subprocess, sys
sys.path[:0] = ["tests", "tests/models"]
import folder
import quantized_whole as whole
from told import told, end
lumen, tmp = sys.argv[1:]
with open(f"{tmp}/ids", "w") as f:
    f.write(" ".join(str((i * 37 + 11) % 500) for i in range(40)))


def run(*args):
    return subprocess.run([lumen, *args], capture_output=True, stdin=subprocess.DEVNULL)


def logits(path, name):
    r = run("logits", path, "--ids", f"{tmp}/ids", "--precision", "f32", "--out", f"{tmp}/logits")
    if r.returncode:
        told(name, r.stderr.decode()[:300])
        return None
    with open(f"{tmp}/logits", "rb") as f:
        return f.read()


def of(conf, name, **more):
    folder.write(f"{tmp}/m", conf, **more)
    return logits(f"{tmp}/m", name)


def config(drop=(), **more):
    c = folder.config(**more)
    for k in drop:
        del c[k]
    return c


def same(name, a, b):
    if a is not None and b is not None:
        told(name, None if a == b else "other logits")


def other(name, a, b):
    if a is not None and b is not None:
        told(name, None if a != b else "the same logits")


# rope: theta and scaling at the top, below rope_scaling, below rope_parameters.
plain = of(config(), "rope_theta")
same("rope_theta in rope_parameters", plain, of(config(["rope_theta"], rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}), "rope_parameters"))
same("rope_scaling null is none", plain, of(config(rope_scaling=None), "null"))
other("another theta", plain, of(config(rope_theta=500000.0), "theta"))
for kind, more in (("linear", {"factor": 4.0}), ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
                   ("yarn", {"factor": 4.0, "original_max_position_embeddings": 32})):
    new = of(config(["rope_theta"], rope_parameters={"rope_theta": 10000.0, "rope_type": kind, **more}), kind)
    other(f"{kind} scaling counts", plain, new)
    same(f"{kind}: rope_scaling with rope_type", new, of(config(rope_scaling={"rope_type": kind, **more}), kind))
    same(f"{kind}: rope_scaling with type", new, of(config(rope_scaling={"type": kind, **more}), kind))

# heads: tied or not.
with_head = of(config(tie_word_embeddings=False), "untied")
same("without the key the head that is there counts", with_head, plain)
tied = of(config(tie_word_embeddings=True), "tied", head=False)
other("a head of its own counts", with_head, tied)
same("tied: a head that is there all the same does not", tied, of(config(tie_word_embeddings=True), "tied with a head"))
same("no head and no key: tied", tied, of(config(), "no head", head=False))

# Gemma 3: alone, and the language's part of a model that sees, in either place, told of what is not read.
gemma = dict(drop=["architectures", "rope_theta"], model_type="gemma3_text", head_dim=16, query_pre_attn_scalar=16, sliding_window=16, rms_norm_eps=1e-6,
             rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0}, layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
text = {**config(**gemma), "rope_theta": 1000000.0}
alone = of({**text, "architectures": ["Gemma3ForCausalLM"]}, "gemma3", gemma=True, layers=3, head=False)
sees = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}, "eos_token_id": [2, 3]}
for prefix, vision in (("language_model.model.", "vision_tower.vision_model.embeddings.patch_embedding.weight"), ("model.language_model.", "model.vision_tower.encoder.weight")):
    got = of(sees, prefix, gemma=True, layers=3, head=False, prefix=prefix, extra=[(vision, (4, 4)), ("multi_modal_projector.mm_input_projection_weight", (4, 4))])
    same(f"{prefix}*: the language's part of a model that sees", alone, got)
    r = run("run", f"{tmp}/m", "hi", "--max-tokens", "1", "--seed", "1")
    told(f"{prefix}*: run says what is not used", None if r.returncode == 0 and b"2 tensors are not used" in r.stderr and vision.encode() in r.stderr else r.stderr.decode()[:300])
    r = run("convert", f"{tmp}/m", f"{tmp}/sees.gguf")
    told(f"{prefix}*: convert says what is not written", None if r.returncode == 0 and b"2 tensors are not used" in r.stderr else r.stderr.decode()[:300])
    same(f"{prefix}*: the same as GGUF", alone, logits(f"{tmp}/sees.gguf", "as GGUF"))
    ends = json.loads(run("show", "--json", f"{tmp}/sees.gguf").stdout)["ends"]
    told(f"{prefix}*: ends go along", None if ends == [2, 3] else f"{ends}")
# What a text config leaves out has the defaults of its family.
bare = {k: v for k, v in text.items() if k not in ("rope_theta", "rope_local_base_freq", "rms_norm_eps", "_sliding_window_pattern", "sliding_window_pattern", "vocab_size")}
same("a text config without the usual values", alone, of({**sees, "text_config": bare}, "bare", gemma=True, layers=3, head=False, prefix="language_model.model."))

# generation_config.json: ends and advice.
folder.write(f"{tmp}/m", config())
def generation(**more):
    with open(f"{tmp}/m/generation_config.json", "w") as f:
        json.dump(more, f)
generation(eos_token_id=2)
first = json.loads(run("run", f"{tmp}/m", "hi", "--raw", "--json", "--temperature", "0", "--max-tokens", "6").stdout)
ids = first["ids"]
told("six tokens", None if first["reason"] == "length" and len(ids) == 6 else str(first))
generation(eos_token_id=[2, ids[3]])
r = json.loads(run("run", f"{tmp}/m", "hi", "--raw", "--json", "--temperature", "0", "--max-tokens", "6").stdout)
told("the second of a list of ends ends", None if r["reason"] == "end" and r["ids"] == ids[:ids.index(ids[3]) + 1] else str(r))
generation(eos_token_id=[2, 3], temperature=0.0, top_k=5, top_p=0.5, min_p=0.25, repetition_penalty=1.25)
a = json.loads(run("run", f"{tmp}/m", "hi", "--raw", "--json", "--repeat-penalty", "1", "--max-tokens", "6").stdout)
told("advice on sampling is followed", None if a["ids"] == ids else f"{a['ids']}, expected {ids}")
r = run("show", f"{tmp}/m").stdout.decode()
for line in ("temperature 0, top-k 5, top-p 0.5, min-p 0.25, repetition penalty 1.25", 'answers end at 2 "<|im_end|>", 3 "<|im_start|>"'):
    told(f"show says {line}", None if line in r else r[-400:])
r = json.loads(run("show", "--json", f"{tmp}/m").stdout)
told("show --json too", None if r["ends"] == [2, 3] and r["sampling"]["top_k"] == 5 else str(r["ends"]) + str(r["sampling"]))

# Missing, or of another kind.
for name, change, want in (
        ("no hidden_size", {"hidden_size": None}, "metadata hidden_size: missing"),
        ("hidden_size as text", {"hidden_size": "64"}, "hidden_size"),
        ("hidden_size as a list", {"hidden_size": [64]}, "hidden_size: a list"),
        ("hidden_size of another model", {"hidden_size": 128}, "shape ["),
        ("hidden_size with a fraction", {"hidden_size": 64.5}, "dimension 1 is 64.5"),
        ("no layers", {"num_hidden_layers": 0}, "layers"),
        ("more layers than there are", {"num_hidden_layers": 2}, "model.layers.1.input_layernorm.weight: missing"),
        ("no heads", {"num_attention_heads": 0}, "divided by 0"),
        ("rope of a kind nobody knows", {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, '"spiral", expected one of none, default, linear, llama3, yarn'),
        ("rope_type as a number", {"rope_scaling": {"rope_type": 3}}, "rope_scaling.rope_type: expected text"),
        ("rope_theta as text", {"rope_theta": "10000"}, "rope_theta"),
        ("a huge number", {"num_hidden_layers": 10 ** 30}, "1e+30 layers"),
        ("groups of quantized weights without end", {"quantization_config": {"config_groups": {f"g{i}": {"format": "int-quantized"} for i in range(30000)}}}, "more than 256 names for *"),
        ("architectures as a number", {"architectures": 5}, "architectures"),
        ("architectures empty", {"architectures": []}, "architectures: an empty list"),
        ("no architectures", {"architectures": None}, "says nowhere what model it is"),
        ("max_position_embeddings as text", {"max_position_embeddings": "512"}, "max_position_embeddings")):
    c = {**config(), **change}
    with open(f"{tmp}/m/config.json", "w") as f:
        json.dump({k: v for k, v in c.items() if v is not None}, f)
    r = run("logits", f"{tmp}/m", "--ids", f"{tmp}/ids", "--out", f"{tmp}/logits")
    why = r.stderr.decode()
    told(f"{name}: an error that names it", None if r.returncode == 1 and want in why and why.count("\n") == 1 else f"exit code {r.returncode}: {why[:300]}")
with open(f"{tmp}/m/config.json", "w") as f:
    json.dump(config(), f)
for text, want in (("[]", "is no JSON object"), ("{", "line 1"), ('{"top_k": 5, "top_k": 6}', "duplicate"), ('{"eos_token_id": "x"}', "eos_token_id")):
    with open(f"{tmp}/m/generation_config.json", "w") as f:
        f.write(text)
    r = run("run", f"{tmp}/m", "hi", "--raw", "--max-tokens", "1")
    why = r.stderr.decode()
    told(f"generation_config.json {text}: an error", None if r.returncode == 1 and want in why and "generation_config" in why else f"exit code {r.returncode}: {why[:300]}")
os.makedirs(f"{tmp}/many", exist_ok=True)
shutil.copyfile("tests/models/llama-linear/config.json", f"{tmp}/many/config.json")
named = [(k, *t) for k, t in whole.read("tests/models/llama-linear").items()]
folder.store(f"{tmp}/many/model.safetensors", named + [(f"model.layers.0.self_attn.q_proj.{i}", "U8", [1], b"\0") for i in range(50000)])
try:
    subprocess.run([lumen, "logits", f"{tmp}/many", "--ids", f"{tmp}/ids", "--out", f"{tmp}/logits", "--context", "64"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100, check=True)
    told("tens of thousands of tensors beside a weight: seconds", None)
except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as e:
    told("tens of thousands of tensors beside a weight: seconds", str(e)[-200:])
end()
END
python3 "$TEST_TMP/configs.py" "$LUMEN" "$TEST_TMP" || n_bad=1
finish
