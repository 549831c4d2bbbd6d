# Targets: all (build/lumen), test, test-all, lint, clean. `make V=1` prints commands.
CC      ?= gcc
OPT     ?= -O2 -g
WARN    := -Wall -Wextra -Wno-format-zero-length -Wpedantic -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes -Werror
BUILD   ?= build
CFLAGS  := -std=c17 -ffp-contract=off -D_GNU_SOURCE $(OPT) $(WARN) -Isrc -I$(BUILD) $(EXTRA)
LIBDIR  := /usr/lib/$(shell $(CC) -dumpmachine)
static   = $(if $(wildcard $(LIBDIR)/lib$(1).a),$(LIBDIR)/lib$(1).a,-l$(1))
LIBS    := $(call static,jansson) $(call static,pcre2-8) $(call static,utf8proc) $(call static,z) $(call static,crypto) -lpthread -ldl -lm
Q       := $(if $(V),,@)

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
# Everything again under the sanitizers and with another compiler, and the fuzz targets' corpora.
test-all: test
	$(Q)tools/setup all
	$(Q)$(MAKE) BUILD=build/asan EXTRA='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' all unit
	$(Q)tools/runtests --patience 6 build/asan
	$(Q)$(MAKE) BUILD=build/clang CC=clang-22 all unit
	$(Q)tools/runtests build/clang
	$(Q)tests/fuzz/run 20
lint: unit
	$(Q)tools/lint --build $(BUILD)
clean:
	rm -rf $(BUILD)
.PHONY: all unit test test-all lint clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
