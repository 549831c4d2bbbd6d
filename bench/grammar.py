#!/usr/bin/env python3
"""Times structured output beside llguidance and xgrammar (those that are installed): compiling a schema, and the mask before each token of instances.

usage: bench/grammar.py [--lumen build/lumen] [--tokenizer tests/text/tokenizers/qwen3] [--rounds 3]

Each engine goes over the same schemas and the same tokens in turn; of the rounds the one with the smallest mean counts, as other processes only ever
add time; Lumen's are processor time. A fresh matcher each round: first masks are cold. Figures: compile in milliseconds; mean, median, 99th percentile and maximum of a mask in
microseconds."""
import argparse, gzip, json, os, statistics, subprocess, tempfile, time

CASES = {
    "any object": ({"type": "object"},
                   [{"title": "A long title with many words and so on", "items": [{"id": i, "name": f"item number {i}", "price": i * 1.5, "tags": ["red", "green"],
                                                                                 "nested": {"a": None, "b": True, "c": [1, 2, 3]}} for i in range(12)]}]),
    "person": ({"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                                 "email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 8}},
                "required": ["name", "age", "email", "tags"], "additionalProperties": False},
               [{"name": "Ludwig van Beethoven", "age": 56, "email": "ludwig@example.org", "tags": ["red", "blue"]}, {"name": "김철수", "age": 3, "email": "kim@example.kr", "tags": []}]),
    "tool call": ({"type": "object", "properties": {"name": {"enum": ["get_weather", "search", "send_mail"]}, "arguments": {"type": "object", "properties": {
        "city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer"}}, "required": ["city"], "additionalProperties": False}},
        "required": ["name", "arguments"], "additionalProperties": False}, [{"name": "get_weather", "arguments": {"city": "Seoul, South Korea", "unit": "celsius", "days": 5}}]),
    "tree": ({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                                                     "required": ["value", "children"], "additionalProperties": False}}},
             [{"value": "root", "children": [{"value": "left branch", "children": []}, {"value": "right", "children": [{"value": "leaf", "children": []}]}]}]),
}


# Calls in the syntax of a chat template, held to the "tool call" case's arguments: its file, and one. No peer has them.
CALLS = {
    "JSON in tags": ("Qwen-Qwen3-0.6B",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Seoul, South Korea", "unit": "celsius", "days": 5}}\n</tool_call>'),
    "XML": ("Qwen3-Coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nSeoul, South Korea\n</parameter>\n<parameter=unit>\ncelsius\n</parameter>\n<parameter=days>\n5\n</parameter>\n</function>\n</tool_call>"),
    "keys and values": ("GLM-4.6",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Seoul, South Korea</arg_value>\n<arg_key>days</arg_key>\n<arg_value>5</arg_value>\n</tool_call>"),
    "Python": ("LFM2-8B-A1B",
        '<|tool_call_start|>[get_weather(city="Seoul, South Korea", unit=\'celsius\', days=5)]<|tool_call_end|>'),
    "braces": ("google-gemma-4-31B-it",
        '<|tool_call>call:get_weather{city:<|"|>Seoul, South Korea<|"|>,days:5}<tool_call|>'),
    "JSON behind headers": ("openai-gpt-oss-120b",
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Seoul, South Korea", "days": 5}<|call|>'),
    "JSON and markers": ("deepseek-ai-DeepSeek-V3.1",
        '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Seoul, South Korea", "days": 5}<｜tool▁call▁end｜>'),
}
PROSE = "Let me look that up for you. The weather in Seoul changes quickly at this time of the year, so I will ask the service for the next days and then say what to wear.\n"


def figures(us):
    us = sorted(us)
    return statistics.mean(us), us[len(us) // 2], us[len(us) * 99 // 100], us[-1]


def run_masks(args, flag, value, texts, *more):
    """`lumen grammar`, the value in the file that the flag names -> ms to compile, microseconds of the masks."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(value, f)
        f.flush()
        out = subprocess.run([args.lumen, "grammar", flag, f.name, "--mask-bench", "--tokenizer", args.tokenizer, *more], input="\n".join(texts) + "\n", capture_output=True, text=True, check=True).stdout
    row = dict(line.split() for line in out.splitlines())
    assert int(row["masks"]) > 10, f"not accepted: {texts}"
    return float(row["compile_ms"]), tuple(float(row[f"mask_{k}_us"]) for k in ("mean", "median", "p99", "max"))


def run_lumen(args, schema, texts): return run_masks(args, "--schema", schema, texts, "--as-generated")


def run_calls(args, name, answer):
    arguments = CASES["tool call"][0]["properties"]["arguments"]
    tools = [{"type": "function", "function": {"name": n, "parameters": arguments}} for n in ("get_weather", "search", "send_mail")]
    template, call = CALLS[name]
    more = ["--template", f"tests/text/templates/templates/{template}.jinja"] + ["--answer"] * answer
    return run_masks(args, "--tools", tools, [json.dumps(PROSE * answer + call)], *more)


def make_llguidance(tokenizer_json, n_vocab):
    import llguidance, numpy
    from llguidance import numpy as llnp
    tok = llguidance.LLTokenizer(tokenizer_json, n_vocab=n_vocab)
    mask = llnp.allocate_token_bitmask(1, n_vocab)

    def run(schema, texts, encode):
        us = []
        t = time.perf_counter()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        m = llguidance.LLMatcher(tok, grammar)
        assert not m.get_error(), m.get_error()
        compile_ms = (time.perf_counter() - t) * 1e3
        for text in texts:
            m.reset()
            for i in encode(text):
                t = time.perf_counter()
                llnp.fill_next_token_bitmask(m, mask, 0)
                us.append((time.perf_counter() - t) * 1e6)
                assert m.consume_token(i), (text, i)
        return compile_ms, figures(us)
    return run


def make_xgrammar(tokenizer, n_vocab):
    import xgrammar
    vocab = [""] * n_vocab
    for text, i in tokenizer.get_vocab().items():
        vocab[i] = text
    info = xgrammar.TokenizerInfo(vocab, vocab_type=xgrammar.VocabType.BYTE_LEVEL, vocab_size=n_vocab)
    mask = xgrammar.allocate_token_bitmask(1, n_vocab)

    def run(schema, texts, encode):
        us = []
        t = time.perf_counter()
        compiled = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False).compile_json_schema(json.dumps(schema))
        compile_ms = (time.perf_counter() - t) * 1e3
        for text in texts:
            m = xgrammar.GrammarMatcher(compiled)
            for i in encode(text):
                t = time.perf_counter()
                m.fill_next_token_bitmask(mask, 0)
                us.append((time.perf_counter() - t) * 1e6)
                assert m.accept_token(i), (text, i)
        return compile_ms, figures(us)
    return run


def main():
    ap = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    ap.add_argument("--lumen", default="build/lumen")
    ap.add_argument("--tokenizer", default="tests/text/tokenizers/qwen3")
    ap.add_argument("--rounds", type=int, default=3)
    args = ap.parse_args()
    engines = {"lumen": lambda schema, texts: run_lumen(args, schema, texts)}
    try:
        import tokenizers
        path = os.path.join(args.tokenizer, "tokenizer.json.gz")
        with gzip.open(path, "rt", encoding="utf-8") as f:
            text = f.read()
        tok = tokenizers.Tokenizer.from_str(text)
        n_vocab = tok.get_vocab_size(True)

        def encode(s):
            return tok.encode(s, add_special_tokens=False).ids
        for name, make in (("llguidance", lambda: make_llguidance(text, n_vocab)), ("xgrammar", lambda: make_xgrammar(tok, n_vocab))):
            try:
                run = make()
                engines[name] = lambda schema, texts, run=run: run(schema, texts, encode)
            except ImportError as e:
                print(f"{name} is not installed: {e}")
    except ImportError as e:
        print(f"no peers: {e}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, best of {args.rounds} rounds")
    print("| schema | engine | compile ms | mean us | median | p99 | max |\n|---|---|---|---|---|---|---|")
    for case, (schema, values) in CASES.items():
        texts, best = [json.dumps(v, ensure_ascii=False) for v in values], {}
        for _ in range(args.rounds):
            for name, run in engines.items():
                try:
                    got = run(schema, texts)
                except AssertionError as e:
                    best[name] = f"refused: {e}"
                    continue
                if name not in best or isinstance(best[name], str) or got[1][0] < best[name][1][0]:
                    best[name] = (min(got[0], best[name][0]) if isinstance(best.get(name), tuple) else got[0], got[1])
        for name, got in best.items():
            print(f"| {case} | {name} | " + (got if isinstance(got, str) else f"{got[0]:.2f} | " + " | ".join(f"{x:.1f}" for x in got[1])) + " |", flush=True)
    print("| calls | compile ms | mean us | median | p99 | max |\n|---|---|---|---|---|---|")
    for name in CALLS:
        for answer in (False, True):
            got = min((run_calls(args, name, answer) for _ in range(args.rounds)), key=lambda g: g[1][0])
            print(f"| {name}{', behind a text' if answer else ''} | {got[0]:.2f} | " + " | ".join(f"{x:.1f}" for x in got[1]) + " |", flush=True)


if __name__ == "__main__":
    main()
