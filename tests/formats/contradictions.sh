# Checkpoints whose config.json says one thing of their quantized weights and whose tensors another: refused, naming both; kinds that nobody here describes are
# refused by name, listing what is known; what it says of activations and cached keys does not matter.
# runtests: machine code
# runtests: timeout 300
. tests/lib.sh
cat > "$TEST_TMP/contradictions.py" <<'END'
import json, os, resource, shutil, subprocess, sys
sys.path[:0] = ["tests", "tests/models"]
from told import told, end
import folder
import quantized_whole as whole
lumen, tmp = sys.argv[1:]
CASES = "tests/models/quantized/"
NONE = object()


def edited(case, path, value, drop=()):
    """A copy of the case in which quantization_config's PATH is VALUE (NONE: gone), without the tensors whose names end in one of drop."""
    out = f"{tmp}/edited"
    shutil.rmtree(out, ignore_errors=True)
    os.mkdir(out)
    with open(CASES + case + "/config.json") as f:
        config = json.load(f)
    at, *keys = [config["quantization_config"], *path.split(".")] if path else [None]
    for k in keys[:-1]:
        at = at[int(k)] if isinstance(at, list) else at.setdefault(k, {})
    if keys:
        at[keys[-1]] = value
        if value is NONE:
            del at[keys[-1]]
    with open(out + "/config.json", "w") as f:
        json.dump(config, f)
    folder.store(out + "/model.safetensors", [(k, *t) for k, t in whole.read(CASES + case).items() if not k.endswith(tuple(drop) or ("\0",))])
    return out


def weight(case):
    with open(CASES + case + "/golden.json") as f:
        r = json.load(f)["rectangles"][0]
    return [r["weight"]] + ([] if "expert" in r else ["--shape", ",".join(map(str, r["full_shape"][-2:]))])


def decode(case, path, value, drop=()):
    return subprocess.run([lumen, "decode", edited(case, path, value, drop), *weight(case)], capture_output=True, timeout=60)


W = "config_groups.group_0.weights."
for case, path, value, *says in (
        ("awq", "bits", 3, "quantization_config.bits: 3, but the tensors say 4", "layout awq"),
        ("awq", "group_size", 64, "quantization_config.group_size: 64, but the tensors say 128"),
        ("awq", "group_size", -1, "quantization_config.group_size: -1, but the tensors say 128"),
        ("awq", "zero_point", False, "quantization_config.zero_point: 0, but the tensors say 1"),
        ("awq", "version", "gemv_fast", 'quantization_config.version: "gemv_fast", expected one of gemm, GEMM'),
        ("gptq-v1", "bits", 8, "quantization_config.bits: 8, but the tensors say 4", "layout gptq"),
        ("gptq-v2-desc_act", "group_size", 128, "quantization_config.group_size: 128, but the tensors say 32"),
        ("gptq-v1", "checkpoint_format", "marlin", 'quantization_config.checkpoint_format: "marlin", expected one of gptq, gptq_v2'),
        ("gptq-v1", "quant_method", "awq", 'quantization_config.quant_method: "awq", expected gptq', "layout gptq"),
        ("int4-ct-g128", W + "num_bits", 8, "group_0.weights.num_bits: 8, but the tensors say 4"),
        ("int4-ct-g128", W + "group_size", 32, "group_0.weights.group_size: 32, but the tensors say 128"),
        ("int4-ct-g128", W + "symmetric", False, "group_0.weights.symmetric: 0, but the tensors say 1"),
        ("int4-ct-g32-zp", W + "symmetric", True, "group_0.weights.symmetric: 1, but the tensors say 0"),
        ("int4-ct-g128", W + "type", "float", 'group_0.weights.type: "float", expected int'),
        ("int4-ct-g128", "format", "marlin-24", 'quantization_config.format: "marlin-24", expected one of pack-quantized, mixed-precision'),
        ("fp8-channel-ct", W + "strategy", "tensor", 'group_0.weights.strategy: "tensor", expected channel'),
        ("fp8-channel-ct", "format", "dense", 'quantization_config.format: "dense", expected one of float-quantized'),
        ("nvfp4-ct", W + "group_size", 32, "group_0.weights.group_size: 32, but the tensors say 16"),
        ("nvfp4-modelopt", W + "num_bits", 8, "group_0.weights.num_bits: 8, but the tensors say 4"),
        ("bnb-nf4", "bnb_4bit_use_double_quant", False, "bnb_4bit_use_double_quant: 0, but the tensors say 1"),
        ("bnb-nf4", "bnb_4bit_quant_type", "fp4", '"fp4", expected nf4'),
        ("fp8-block", "weight_block_size", [64, 64], "no layout of the texts fits", "weight_scale_inv BF16 [4, 2]", "the metadata says", "quantization_config.weight_block_size [64, 64]"),
        ("gptq-v1", "dynamic", {"+:.*\\.0\\..*": {"bits": 8}}, "k_proj.weight", "dynamic.+:.*\\.0\\..*.bits: 8, but the tensors say 4"),
        ("gptq-v1", "dynamic", {".*k_proj": {"bits": 8}, ".*": {"bits": 4}}, "dynamic..*k_proj.bits: 8, but the tensors say 4"),
        ("gptq-v1", "dynamic", {".*": {"group_size": 32}}, "dynamic..*.group_size: 32, but the tensors say 128"),
        ("gptq-v1", "dynamic", {"-:.*k_proj": {}, ".*": {"bits": 4}}, "dynamic.*: '-:.*k_proj' leaves model.layers.0.self_attn.k_proj out, whose tensors lie here"),
        ("gptq-v1", "dynamic", {"+:(.*": {"bits": 4}}, "regular expression '+:(.*': missing closing parenthesis"),
        ("gptq-v1", "dynamic", {"+:([a-z0-9_.]+)+[!?]": {}}, "regular expression '+:([a-z0-9_.]+)+[!?]' takes too long to compare with model.layers.0.self_attn.k_proj"),
        ("gptq-v1", "dynamic", {f"+:layer {i}": {} for i in range(9000)}, "dynamic.*: more than 8192 texts"),
        ("int4-ct-g128", "ignore", ["re:.*k_proj"], "quantization_config.ignore: 're:.*k_proj' leaves model.layers.0.self_attn.k_proj out"),
        ("int4-ct-g128", "ignore", ["lm_head", "model.layers.0.self_attn.k_proj"], "leaves model.layers.0.self_attn.k_proj out"),
        ("int4-ct-g128", "ignore", "re:" + "(" * 5000, "metadata quantization_config.ignore: 're:(((((", "5003 bytes, expected at most 4096"),
        ("int4-ct-g128", "ignore", ["lm_head", "k" * 5000], "metadata quantization_config.ignore: 'kkk", "5000 bytes, expected at most 4096"),
        ("int4-ct-g128", "ignore", "re:" + "(" * 4000, "regular expression"),
        ("int4-ct-g128", "ignore", ["lm_head", 3], "metadata quantization_config.ignore: a list of values of several kinds, expected texts"),
        ("int4-ct-g128", "ignore", [None], "metadata quantization_config.ignore: a list of values of several kinds, expected texts"),
        ("int4-ct-g128", "ignore", {"lm_head": True}, "metadata quantization_config.ignore: an object, expected texts"),
        ("int4-ct-g128", "ignore", [1], "metadata quantization_config.ignore: expected texts"),
        ("int4-ct-g128", "config_groups.group_0.targets", {"Linear": 1}, "metadata quantization_config.config_groups.group_0.targets: an object, expected texts"),
        ("int4-ct-g128", "config_groups.group_0.targets", [], "metadata quantization_config.config_groups.*.targets: nothing there speaks of model.layers.0.self_attn.k_proj"),
        ("int4-ct-g128", "config_groups", [{"targets": ["Linear"]}], "metadata quantization_config.config_groups: expected an object"),
        ("gptq-v1", "dynamic", ["-:.*k_proj"], "metadata quantization_config.dynamic: expected an object"),
        ("gptq-v1", "dynamic", [{"-:.*k_proj": {}}], "metadata quantization_config.dynamic: expected an object"),
        ("gptq-v1", "dynamic", "-:.*k_proj", "metadata quantization_config.dynamic: expected an object"),
        ("gptq-v1", "dynamic", {"+:" + "|".join(f"x{i}" for i in range(700)) + "|model.*k_proj": {"bits": 8}}, "k_proj.bits: 8, but the tensors say 4"),  # a long key
        ("int4-ct-g128", "config_groups", {f"g{i}": {"targets": ["Linear"], "weights": {"num_bits": 3}} for i in range(300)}, "config_groups.*.targets: more than 256 names for * speak of model.layers.0.self_attn.k_proj"),
        ("nvfp4-modelopt", "ignore", ["model.layers.?.self_attn*"], "'model.layers.?.self_attn*' leaves model.layers.0.self_attn.k_proj out"),
        ("fp8-block", "modules_to_not_convert", ["lm_head", "model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.k_proj"], "layout scaled_blocks: metadata quantization_config.modules_to_not_convert: 'model.layers.0."),
        ("int4-ct-g128", "config_groups.group_0.targets", ["re:.*mlp.*", "model.layers"], "config_groups.*.targets: nothing there speaks of model.layers.0.self_attn.k_proj"),
        ("mixed-precision", "config_groups.group_0.weights.num_bits", 2, "group_0.weights.num_bits: 2, but"),
        ("mixed-precision", "config_groups.group_1.targets", ["re:.*mlp.*", weight("mixed-precision")[0].removesuffix(".weight")], "config_groups.group_1."),   # a name outdoes an expression
        ("gptq-v1", "quant_method", "hqq", 'quantization_config.quant_method: "hqq", expected one of', "awq", "bitsandbytes", "compressed-tensors", "gptq", "modelopt", "mxfp4"),
):
    r = decode(case, path, value)
    said = r.stderr.decode()
    lost = [s for s in says if s not in said]
    told(f"{case}: {path} = {value} is refused, naming both", None if r.returncode == 1 and not lost else f"exit code {r.returncode}, no {lost} in: {said[:400]}")
for case, path, value in (
        ("nvfp4-modelopt", "kv_cache_scheme", {"num_bits": 4, "type": "int", "dynamic": True}),
        ("int4-ct-g128", "kv_cache_scheme", {"num_bits": 8, "type": "float"}),
        ("fp8-tensor-static-ct", "config_groups.group_0.input_activations.num_bits", 4),
        ("awq", "version", "GEMM"),
        ("awq", "group_size", NONE),
        ("gptq-v1", "dynamic", {"-:.*down.*": {}, "+:.*\\.0\\..*k_proj.*": {"bits": 4}}),
        ("gptq-v1", "dynamic", {"+:.*\\.1\\..*": {"bits": 8}, "self_attn.*": {"bits": 8}, "-:k_proj": {}}),  # other layers; not from the beginning
        ("gptq-v1", "dynamic", {".*k_proj": {"desc_act": False}, "-:.*": {}, ".*_proj": {"bits": 8}}),  # the first
        ("mixed-precision", "config_groups.group_1.targets", ["Linear"]),      # an expression outdoes a class
        ("int4-ct-g128", "config_groups.group_0.targets", NONE),
        ("int4-ct-g128", "ignore", ["k_proj", "re:k_proj", "*.1.*", "model"]),
        ("fp8-block", "modules_to_not_convert", ["k_proj", "self_attn", "proj"]),
        ("gptq-v1", "quant_method", NONE),
        ("mixed-precision", "config_groups.group_1.weights.num_bits", 2),  # of the other group, which is not the weight's
        ("fp8-block-ct", W + "block_structure", [128, 128]),
        ("int4-ct-g128", "ignore", ["everything"]),
        ("int4-ct-g128", "ignore", []),
        ("int4-ct-g128", "ignore", None),
        ("gptq-v1", "dynamic", {}),
        ("gptq-v1", "dynamic", []),
        ("gptq-v1", "dynamic", {"-:" + "|".join(f"x{i}" for i in range(700)): {}}),
        ("gptq-v1", "dynamic", {f"model\\.layers\\.{i}\\.self_attn\\.k_proj": {"bits": 8 if i else 4} for i in range(560)}),
):
    r = decode(case, path, value)
    told(f"{case}: {path} = {'gone' if value is NONE else value} is fine", None if r.returncode == 0 else r.stderr.decode()[:400])
# What PCRE2 does between two steps back, and every comparison of many, is bounded too: seconds where it was minutes.
LONG, MANY = ".*.*.*" + "z*+y*+" * 670 + r"\d\d\d\d", ".*.*" + "z*+y*+" * 45 + r"\d\d\d\d"
for name, texts, says in (("long", 300 * ["re:" + LONG], "takes too long to compare with model.layers.0.self_attn.k_proj"),
                          ("many", [f"re:(?#{i}){MANY}" for i in range(8000)], "metadata quantization_config.ignore: its texts take too long to compare"),
                          ("large", [f"re:(?:.*.*(?:{'z|' * 700}z){{4}}q){i}" for i in range(1900)], "metadata quantization_config.ignore: its regular expressions take more than 64 MiB"),
                          ("wide ranges in", ["re:(?i)" + "[\\x{100}-\\x{10ffff}]" * 180 for i in range(900)], "metadata quantization_config.ignore: its texts take too long to compare"),
                          ("ranges of letters in", ["re:(?i)" + "[Ā-\U0010ffff]" * 100 for i in range(300)], "metadata quantization_config.ignore: its texts take too long to compare"),
                          ("groups", [f"re:{'()' * 400}.*.*" + r"\d\d\d" for i in range(900)], "takes too long to compare with"),
                          ("alternatives", 300 * [f"re:.*(?:{'|' * 4000})" + r"\d\d\d"], "takes too long to compare with")):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    r = decode("int4-ct-g128", "ignore", texts)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    told(f"{name} expressions that take long are given up", None if r.returncode == 1 and says in r.stderr.decode() and took < 8 else f"{took} s, {r.returncode} {r.stderr.decode()[-300:]}")
r = decode("int4-ct-g128", "ignore", [f"re:.*shared_experts{i}.*" for i in range(8000)])
told("8000 expressions that do not are not", None if r.returncode == 0 else r.stderr.decode()[:300])
r = decode("gptq-v1-desc_act", "", None, drop=(".g_idx",))
told("columns out of order, of which no tensor tells the order", None if r.returncode == 1 and b"desc_act: 1, but the tensors say 0" in r.stderr else str(r))
r = decode("gptq-v1", "dynamic", {".*k_proj": {"desc_act": True}}, drop=(".g_idx",))
told("the same by a rule", None if r.returncode == 1 and b"dynamic..*k_proj.desc_act: 1, but the tensors say 0" in r.stderr else str(r))

# Tensors that have moved since the rules were written, either way; of a family that says where to.
def moved(name_of, at, value):
    out = edited("int4-ct-g128", at, value)
    with open(out + "/config.json") as f:
        config = json.load(f)
    config["architectures"] = ["Gemma3ForConditionalGeneration"]
    with open(out + "/config.json", "w") as f:
        json.dump(config, f)
    folder.store(out + "/model.safetensors", [(name_of(k), *t) for k, t in whole.read(CASES + "int4-ct-g128").items()])
    rects = weight("int4-ct-g128")
    return subprocess.run([lumen, "decode", out, name_of(rects[0]), *rects[1:]], capture_output=True, timeout=60)


PLACES = ("model.", "language_model.model.", "model.language_model.")
for there in PLACES:
    for said in PLACES:
        name = said + "layers.0.self_attn.k_proj"
        r = moved(lambda k: there + k.removeprefix("model."), "ignore", [name])
        told(f"tensors at {there}*, ignored ones at {said}*", None if r.returncode == 1 and f"'{name}' leaves {there}layers.0.self_attn.k_proj out".encode() in r.stderr else str(r.returncode) + str(r.stderr[:300]))
        r = moved(lambda k: there + k.removeprefix("model."), "config_groups.group_0.targets", ["re:" + said.replace(".", "\\.") + "layers\\.0"])
        told(f"tensors at {there}*, rules of {said}*", None if r.returncode == 0 else r.stderr.decode()[:300])
r = moved(lambda k: k, "ignore", ["vision_tower.layers.0.self_attn.k_proj", "language_model.layers.0.self_attn.k_proj"])
told("names that are no other place of it", None if r.returncode == 0 else r.stderr.decode()[:300])

# One rule for every module of a deep model.
whole.write(CASES + "gptq-v1", f"{tmp}/deep", repeat=80)
with open(f"{tmp}/deep/config.json") as f:
    config = json.load(f)
for name, bits, code in (("all of its modules", 4, 0), ("one of its modules otherwise", 8, 1)):
    kinds = [f"self_attn.{c}_proj" for c in "qkvo"] + [f"mlp.{c}_proj" for c in ("gate", "up", "down")]
    rules = {f"+:model\\.layers\\.{i}\\.{k.replace('.', chr(92) + '.')}": {"bits": 4} for i in range(80) for k in kinds}
    rules["+:model\\.layers\\.79\\.self_attn\\.k_proj"] = {"bits": bits}
    config["quantization_config"]["dynamic"] = rules
    with open(f"{tmp}/deep/config.json", "w") as f:
        json.dump(config, f)
    r = subprocess.run([lumen, "show", f"{tmp}/deep", "--plan"], capture_output=True, timeout=100)
    told(f"{len(rules)} rules of {name}", None if r.returncode == code and (not code or b"k_proj.bits: 8, but the tensors say 4" in r.stderr) else f"{r.returncode} {r.stderr[:400]}")
shutil.rmtree(f"{tmp}/deep")

# A method that nobody here describes is told before anything else, whatever the tensors are called.
whole.write(CASES + "gptq-v1", f"{tmp}/whole")
with open(f"{tmp}/whole/config.json") as f:
    config = json.load(f)
config["quantization_config"] = {"quant_method": "exl3", "bits": 3}
with open(f"{tmp}/whole/config.json", "w") as f:
    json.dump(config, f)
for args in (("run", f"{tmp}/whole", "hi"), ("convert", f"{tmp}/whole", f"{tmp}/x.gguf", "--quant", "q8_0"), ("show", f"{tmp}/whole", "--plan")):
    r = subprocess.run([lumen, *args], capture_output=True, timeout=60)
    told(f"{args[0]}: an unknown method", None if r.returncode == 1 and b'"exl3", expected one of' in r.stderr else str(r))
end()
END
python3 "$TEST_TMP/contradictions.py" "$LUMEN" "$TEST_TMP" || n_bad=1

# A layout of one's own that wants nothing of the metadata takes any method; one that does is held to it.
mkdir -p "$TEST_TMP/mine"
cat > "$TEST_TMP/mine/mine.lum" <<'EOF'
layout mine [N, K] = "*.weight" {
  tensor w : f8_e4m3[N, K] = "*.weight"
  tensor s : f32 | bf16[N] = "*.weight_scale"
  x(n, k) = w[n, k] * s[n]
}
EOF
cp -r tests/models/quantized/fp8-channel-ct "$TEST_TMP/own"
chmod -R u+w "$TEST_TMP/own"
sed -i 's/"compressed-tensors"/"of-my-own"/' "$TEST_TMP/own/config.json"
w=model.layers.0.self_attn.k_proj.weight
expect "without the text" 1 "$LUMEN" decode "$TEST_TMP/own" $w
expect "with a text of one's own" 0 "$LUMEN" decode "$TEST_TMP/own" $w --std "$TEST_TMP/mine"
sed -i 's/^  x(n, k)/  says "quantization_config.quant_method" = "of-mine"\n  x(n, k)/' "$TEST_TMP/mine/mine.lum"
expect "one that wants another method" 1 "$LUMEN" decode "$TEST_TMP/own" $w --std "$TEST_TMP/mine"
has "both are named" "$err" 'metadata quantization_config.quant_method: "of-my-own", expected one of'
sed -i 's/"of-mine"/"of-mine" | "of-my-own"/' "$TEST_TMP/mine/mine.lum"
expect "and one that wants this" 0 "$LUMEN" decode "$TEST_TMP/own" $w --std "$TEST_TMP/mine"
finish
