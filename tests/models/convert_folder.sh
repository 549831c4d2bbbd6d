# `lumen convert` of Hugging Face folders: every family's GGUF file has the folder's logits bit for bit, the same tokenizer, template and advice;
# llama.cpp, where it was fetched (`tools/peers llama`), reads what it can read alike. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
cases=tests/models
peer=$(peer)
text="Hello, we'll see 1234 things:  ünïcode, 한국어 <|im_end|> and
	tabs"

# folder NAME: the case with a tokenizer, in $TEST_TMP/NAME.
folder() {
  mkdir -p "$TEST_TMP/$1"
  cp $cases/tokenizer/* $cases/"$1"/*.json $cases/"$1"/*.safetensors "$TEST_TMP/$1/"
  cp $cases/"$1"/tokens.txt "$TEST_TMP/$1.ids"
}
# logits NAME FILE OUT PRECISION
logits() { "$LUMEN" logits "$2" --ids "$TEST_TMP/$1.ids" --precision "$4" --out "$3" 2> "$err" || not_ok "$1: logits of $2" "$(cat "$err")"; }
same() { if cmp -s "$2" "$3"; then ok "$1"; else not_ok "$1" "they differ"; fi; }
# close NAME A B LIMIT: the largest difference against the largest logit.
close() {
  if why=$(python3 -c 'import array, sys
a, b = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:3])
m = max(map(abs, a)); d = max(abs(x - y) for x, y in zip(a, b)) / m
sys.exit(0 if len(a) == len(b) and d <= float(sys.argv[3]) else f"{d:.2g} of the largest logit, {len(a)} and {len(b)} values")' "$2" "$3" "$4" 2>&1); then ok "$1"; else not_ok "$1" "$why"; fi
}

for c in llama llama-rope3 llama-linear llama-yarn llama-bias mistral qwen2 qwen2-window qwen3 gemma2 gemma3; do
  folder $c
  f=$TEST_TMP/$c.gguf
  expect "$c: the folder becomes a GGUF file" 0 "$LUMEN" convert "$TEST_TMP/$c" "$f"
  for p in f32 int8; do
    logits $c "$TEST_TMP/$c" "$TEST_TMP/a" $p
    logits $c "$f" "$TEST_TMP/b" $p
    same "$c, $p: the file has the folder's logits" "$TEST_TMP/a" "$TEST_TMP/b"
    [ ! -f $cases/$c/model.gguf ] || { logits $c $cases/$c/model.gguf "$TEST_TMP/b" $p; same "$c, $p: and so has the file of another converter" "$TEST_TMP/a" "$TEST_TMP/b"; }
  done
  expect "$c: to F32" 0 "$LUMEN" convert "$TEST_TMP/$c" "$TEST_TMP/f32.gguf" --quant f32
  logits $c "$TEST_TMP/$c" "$TEST_TMP/a" f32
  logits $c "$TEST_TMP/f32.gguf" "$TEST_TMP/b" f32
  same "$c: F32 of what was BF16 or F16 has the same bits" "$TEST_TMP/a" "$TEST_TMP/b"
  # llama.cpp ignores the windows of mistral and qwen2, and how gemma's scores are scaled where it is unusual: 40 in both cases here.
  case $c in mistral | qwen2-window | gemma2 | gemma3) limit='' ;; *) limit=0.005 ;; esac
  if [ -z "$peer" ]; then skip "$c: llama.cpp reads it" "it was not fetched"; continue; fi
  if python3 $cases/peer_reads.py "$peer" "$TEST_TMP/f32.gguf" "$TEST_TMP/$c.ids" "$TEST_TMP/peer" "$text" > "$out" 2> "$err"; then
    ok "$c: llama.cpp reads it"
    [ -z "$limit" ] || close "$c: llama.cpp gives logits like ours" "$TEST_TMP/a" "$TEST_TMP/peer" $limit
    "$LUMEN" tokenize "$TEST_TMP/f32.gguf" "$text" --special --json > "$TEST_TMP/ids"
    is_json "$c: llama.cpp reads a text as we do" "$out" "o == json.load(open('$TEST_TMP/ids'))"
  else not_ok "$c: llama.cpp reads it" "$(tail -n 2 "$err")"; fi
done

# The tokenizer, the template, the advice.
d=$TEST_TMP/llama
printf '{"eos_token_id": [2, 3], "temperature": 0.25, "top_k": 7, "repetition_penalty": 1.5, "top_p": 7}' > "$d/generation_config.json"
expect "with advice" 0 "$LUMEN" convert "$d" "$TEST_TMP/with.gguf" --quant q8_0
"$LUMEN" show "$TEST_TMP/with.gguf" > "$TEST_TMP/show"
for k in 'general.sampling.temp ' 'general.sampling.top_k ' 'general.sampling.penalty_repeat ' 'tokenizer.ggml.eot_token_id ' 'tokenizer.chat_template ' 'llama.vocab_size '; do
  has "it says $k" "$TEST_TMP/show" "$k"
done
hasnt "advice out of its bounds is no advice" "$TEST_TMP/show" general.sampling.top_p
for w in "$text" '' ' x' 'a<s>b'; do
  "$LUMEN" tokenize "$d" "$w" --special --json > "$TEST_TMP/a"
  "$LUMEN" tokenize "$TEST_TMP/with.gguf" "$w" --special --json > "$TEST_TMP/b"
  same "'$w' has the same ids" "$TEST_TMP/a" "$TEST_TMP/b"
done
printf '[{"role": "user", "content": "hi"}]' > "$TEST_TMP/messages"
"$LUMEN" render "$d" --messages "$TEST_TMP/messages" > "$TEST_TMP/a"
"$LUMEN" render "$TEST_TMP/with.gguf" --messages "$TEST_TMP/messages" > "$TEST_TMP/b"
same "the chat template is the same" "$TEST_TMP/a" "$TEST_TMP/b"
expect "it answers" 0 "$LUMEN" run "$TEST_TMP/with.gguf" hello --max-tokens 4 --seed 1

# What cannot be written is refused before anything is.
refuse() { # NAME TEXT
  expect "$1" 1 "$LUMEN" convert "$TEST_TMP/bad" "$TEST_TMP/bad.gguf"
  has "$1: why" "$err" "$2"
  [ ! -e "$TEST_TMP/bad.gguf" ] && [ ! -e "$TEST_TMP/bad.gguf.part" ] && ok "$1: nothing is left" || not_ok "$1: nothing is left" "there is a file"
}
cp -r "$TEST_TMP/llama" "$TEST_TMP/bad"
rm "$TEST_TMP/bad/tokenizer.json"
refuse "a folder without a tokenizer" "tokenizer"
printf '{"model": {"type": "WordPiece", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}' > "$TEST_TMP/bad/tokenizer.json"
refuse "a tokenizer that GGUF cannot say" "of a kind that cannot be written"
printf '{"architectures": ["StrangeForCausalLM"]}' > "$TEST_TMP/bad/config.json"
refuse "a model nobody knows" "StrangeForCausalLM"
finish
