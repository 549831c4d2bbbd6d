# Targets: all (build/lumen), unit, test, test-all (and its parts test-asan, test-tsan, test-clang, test-fuzz, test-arm), lint, clean. `make V=1` prints commands.
CC      ?= gcc
OPT     ?= -O2 -g
WARN    := -Wall -Wextra -Wno-format-zero-length -Wpedantic -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes -Werror
BUILD   ?= build
CFLAGS  := -std=c17 -ffp-contract=off -D_GNU_SOURCE $(OPT) $(WARN) -Isrc -I$(BUILD) $(EXTRA)
LIBDIR  := /usr/lib/$(shell $(CC) -dumpmachine)
static   = $(if $(wildcard $(LIBDIR)/lib$(1).a),$(LIBDIR)/lib$(1).a,-l$(1))
LIBS    := $(call static,jansson) $(call static,pcre2-8) $(call static,utf8proc) $(call static,z) $(call static,crypto) -lpthread -ldl -lm
Q       := $(if $(V),,@)
comma   := ,
space   := $(subst ,, )

SRC     := $(filter-out src/cmd/main.c,$(wildcard src/*/*.c src/gen/*/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o) $(BUILD)/std_embed.o
DEF     := $(wildcard src/*/*.def src/gen/*/*.def)
TESTS   := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*.c))

all: $(BUILD)/lumen
$(BUILD)/lumen: $(BUILD)/src/cmd/main.o $(BUILD)/liblumen.a
	$(Q)$(CC) $(OPT) $(EXTRA) -o $@ $^ $(LIBS)
$(BUILD)/liblumen.a: $(OBJ)
	$(Q)rm -f $@; ar rcs $@ $^
$(BUILD)/%.o: %.c
	$(Q)mkdir -p $(@D); $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/std_embed.o: $(BUILD)/std_embed.c
	$(Q)$(CC) $(CFLAGS) -Wno-overlength-strings -c -o $@ $<
# Every std text as a string table: what lang_std_load reads; and the registry of models, which src/file reads.
$(BUILD)/std_embed.c: tools/embed std/registry.json $(shell find std -name '*.lum' 2>/dev/null)
	$(Q)mkdir -p $(@D); sh tools/embed std > $@.tmp && mv $@.tmp $@
$(BUILD)/tests/%: tests/unit/%.c $(BUILD)/liblumen.a
	$(Q)mkdir -p $(@D); $(CC) $(CFLAGS) -MMD -MP -Itests/unit -o $@ $< $(BUILD)/liblumen.a $(LIBS)

unit: $(TESTS)
test: all unit
	$(Q)tools/runtests $(BUILD)
# Everything again under the sanitizers, with another compiler, the fuzz targets, and on Arm by an emulator. Each can be run by itself.
test-all: test
	$(Q)tools/setup all
	$(Q)$(MAKE) test-asan
	$(Q)$(MAKE) test-tsan
	$(Q)$(MAKE) test-clang
	$(Q)$(MAKE) test-fuzz
	$(Q)$(MAKE) test-arm
# gcc's guesses about uninitialized variables are wrong where a sanitizer's calls stand between.
test-asan:
	$(Q)$(MAKE) BUILD=build/asan OPT='-O1 -g' EXTRA='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -Wno-maybe-uninitialized' all unit
	$(Q)TEST_SANITIZED=1 tools/runtests --patience 6 build/asan
# Threads only; machine code is not instrumented, what runs it is. The sanitizer's shadow wants addresses that are not random.
TSAN_TESTS := test_dev test_models
test-tsan:
	$(Q)$(MAKE) BUILD=build/tsan OPT='-O1 -g' EXTRA='-fsanitize=thread -Wno-maybe-uninitialized' all $(TSAN_TESTS:%=build/tsan/tests/%)
	$(Q)tools/runtests --patience 8 --under 'setarch -R' --only $(subst $(space),$(comma),$(TSAN_TESTS:%=unit/%)) build/tsan
test-clang:
	$(Q)if ! command -v clang-22 >/dev/null; then echo 'skip - test-clang: no clang-22'; \
	else $(MAKE) BUILD=build/clang CC=clang-22 all unit && tools/runtests --patience 2 build/clang; fi
test-fuzz:
	$(Q)tests/fuzz/run 20
# No target is for Arm yet: what needs machine code is skipped, all else runs, the interpreter's bits included. One compiler fault stays away with
# -fno-tree-vectorize: gcc 12 for aarch64 dies of an internal error otherwise.
test-arm:
	$(Q)if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then echo 'skip - test-arm: no aarch64-linux-gnu-gcc or no qemu-aarch64'; \
	else $(MAKE) BUILD=build/arm64 CC=aarch64-linux-gnu-gcc OPT='-O2 -g -fno-tree-vectorize' all unit && \
	tools/runtests --patience 15 --under qemu-aarch64 build/arm64; fi
lint: unit
	$(Q)tools/lint --build $(BUILD)
clean:
	rm -rf $(BUILD)
.PHONY: all unit test test-all test-asan test-tsan test-clang test-fuzz test-arm lint clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
