# install.mk: `make install`, `make uninstall` and `make deb`. The Makefile reads it.
#
#   PREFIX    where files live when they are used (default /usr/local)
#   DESTDIR   put before every path: the root of a package's tree (default: none)
#   BINDIR LIBDIR INCLUDEDIR DATADIR   folders under PREFIX
#
# `make install` takes the switches of the build: after `make CUDA=1` it is `make CUDA=1 install`.
PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR    ?= $(PREFIX)/share

MAN  := $B/man/switchyard.1
BASH := $B/completion/switchyard
ZSH  := $B/completion/_switchyard

# Man pages and completions are what the program prints, here and now.
ifneq ($(CROSS),)
$(MAN) $(BASH) $(ZSH): $(B)/cannot-run-here
$B/cannot-run-here:
	@echo "make: a program for $(CROSS) prints no man pages here: run make install or make deb on such a machine" >&2; exit 1
endif

$(MAN): $B/switchyard tools/make_help VERSION CHANGELOG.md
	@rm -rf $(@D)
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/make_help $< man $(@D)

$(BASH): $B/switchyard tools/make_help
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/make_help $< bash $@

$(ZSH): $B/switchyard tools/make_help
	@mkdir -p $(@D)
	$(call say,GEN,$@)tools/make_help $< zsh $@

# Everything that install copies, so that root compiles nothing.
build-install: $(PROGRAM) $(LIBRARY) $(MAN) $(BASH) $(ZSH)

INSTALL := DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' \
           DATADIR='$(DATADIR)' LIBS='$(LIBRARY_LDLIBS)' packaging/install

install: build-install
	@$(INSTALL) $B
uninstall:
	@$(INSTALL) --remove

# Its objects are apart from those for this machine.
PORTABLE := $(BUILD)/portable
deb:
	rm -rf $(PORTABLE)/deb
	$(MAKE) CONFIG=release BUILD=$(PORTABLE) DESTDIR=$(PORTABLE)/deb PREFIX=/usr \
	    LIBDIR=/usr/lib/$$($(CC.release) -print-multiarch) install
	packaging/make_deb $(PORTABLE)/deb $(BUILD)

.PHONY: build-install install uninstall deb
