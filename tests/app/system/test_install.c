/* What `make install` and `make deb` leave on a machine, and what is made of the tables of --help:
 * man pages and completions. */
#include "harness/shell.h"

/* ---- install ---- */

static void what_is_installed_runs_and_goes_again(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(lab, "tree ü",
                      "$MAKE install DESTDIR=\"$PWD\" PREFIX=/opt/yard\n"
                      "opt/yard/bin/switchyard --help\n"
                      "find . -not -type d | LC_ALL=C sort\n");
    CHECK_EXIT(o, 0);
    static const char *const PARTS[] = {
        "usage: switchyard COMMAND",
        "./opt/yard/bin/switchyard\n",
        "./opt/yard/bin/switchyard-bench-comm\n",
        "./opt/yard/bin/switchyard-bench-contention\n",
        "./opt/yard/bin/switchyard-bench-ladder\n",
        "./opt/yard/bin/switchyard-bench-shapes\n",
        "./opt/yard/bin/switchyard-data-ngram\n",
        "./opt/yard/bin/switchyard-doctor\n",
        "./opt/yard/bin/switchyard-plan-calibrate\n",
        "./opt/yard/bin/switchyard-plan-study\n",
        "./opt/yard/bin/switchyard-quickstart\n",
        "./opt/yard/bin/switchyard-report\n",
        "./opt/yard/bin/switchyard-trace-compat\n",
        "./opt/yard/bin/switchyard-trace-diff\n",
        "./opt/yard/bin/switchyard-trace-replay\n",
        "./opt/yard/include/switchyard.h\n",
        "./opt/yard/include/switchyard_trace.h\n",
        "./opt/yard/lib/libswitchyard.a\n",
        "./opt/yard/lib/libswitchyard.so\n",
        "./opt/yard/lib/libswitchyard.so.1\n",
        "./opt/yard/lib/pkgconfig/switchyard.pc\n",
        "./opt/yard/share/bash-completion/completions/switchyard\n",
        "./opt/yard/share/doc/switchyard/LICENSE\n",
        "./opt/yard/share/doc/switchyard/NOTICE\n",
        "./opt/yard/share/doc/switchyard/docs/design.md\n",
        "./opt/yard/share/man/man1/switchyard.1\n",
        "./opt/yard/share/switchyard/presets/quickstart.yaml\n",
        "./opt/yard/share/zsh/site-functions/_switchyard\n",
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) CHECK_SAYS(o.out, PARTS[i]);
    o = shell(lab, "tree ü",
              "find . -perm /022 -not -type l\n"
              "echo mine >opt/yard/lib/other\n"
              "$MAKE uninstall DESTDIR=\"$PWD\" PREFIX=/opt/yard\n"
              "find . -not -type d\n");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "./opt/yard/lib/other\n");
}

static void a_program_finds_the_library_by_pkg_config(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "pkg-config");
    Outcome o = shell(lab, "prefix",
                      "$MAKE install PREFIX=\"$PWD\"\n"
                      "export PKG_CONFIG_PATH=lib/pkgconfig\n"
                      "pkg-config --modversion switchyard | cmp - $ROOT/VERSION\n"
                      "gcc share/doc/switchyard/examples/trace_summary.c -o summary"
                      " $(pkg-config --cflags --libs switchyard)\n"
                      "gcc share/doc/switchyard/examples/trace_summary.c -o static $(pkg-config"
                      " --cflags switchyard) lib/libswitchyard.a"
                      " $(pkg-config --static --libs-only-l switchyard"
                      " | sed s/-lswitchyard//)\n"
                      "rm lib/libswitchyard.so # the one of the soname is enough to run\n"
                      "LD_LIBRARY_PATH=lib ./summary none || test $? = 1\n"
                      "./static none || test $? = 1\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "none cannot be opened");
    if (strstr(strstr(o.err, "none cannot be opened") + 1, "none cannot be opened") == NULL)
        fail_msg("only one of the two programs ran: %s", o.err);
}

/* ---- the quickstart from another folder ---- */

/* 1,500 words of six letters, in documents of 60: enough for a vocabulary of 4,096. */
static void write_corpus(Lab *lab, const char *path, uint64_t domain)
{
    File f = { 0 };
    uint64_t stream = rng_stream("letters"), at = 0;
    CHECK_OK(file_make_folders(lab_path(lab, "quick start/runs/quickstart/corpus")));
    CHECK_OK(file_create_temp(&f, path, &lab->arena));
    for (int i = 0; i < 600; i++) {
        CHECK_OK(file_printf(&f, "{\"text\":\""));
        for (int w = 0; w < 60; w++) {
            uint64_t word = rng_below(domain, stream, at++, 1500);
            for (uint64_t l = 0; l < 6; l++) {
                uint64_t letter = rng_below(word, stream, 10 * domain + l, 26);
                CHECK_OK(file_printf(&f, "%c", 'a' + (int)letter));
            }
            CHECK_OK(file_printf(&f, " "));
        }
        CHECK_OK(file_printf(&f, "\"}\n"));
    }
    CHECK_OK(file_commit(&f));
}

static void the_quickstart_trains_in_any_folder(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "quick start", "train", "quickstart", "--dry-run");
    CHECK_REFUSED(o, 2,
                  "quickstart reads runs/quickstart/data/postgres.idx, which is not in this "
                  "folder: run `switchyard-quickstart --data` here first");
    write_corpus(lab, lab_path(lab, "quick start/runs/quickstart/corpus/postgres.jsonl"), 0);
    write_corpus(lab, lab_path(lab, "quick start/runs/quickstart/corpus/bible.jsonl"), 1);
    o = shell(lab, "quick start",
              "$MAKE install PREFIX=\"$PWD/yard\"\n"
              "yard/bin/switchyard-quickstart --data\n"
              "ln -s \"$PWD/yard/bin/switchyard-quickstart\" link && ./link --data\n"
              "yard/bin/switchyard train quickstart train.steps=1 train.batch=1"
              " train.micro_batch=1 train.eval_every=0 train.eval_sequences=1\n"
              "ls runs/quickstart\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "runs/quickstart/data/tokenizer.json: 4096 tokens from 2 files\n");
    CHECK_SAYS(o.out, "report.html\n");
    o = shell(lab, "quick start", "yard/bin/switchyard-quickstart --dta");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "there is no option --dta");
}

/* ---- man pages ---- */

static void every_command_has_a_man_page_with_its_options(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(
        lab, "cell",
        "walk() {\n"
        "    page=$BUILT/man/$(echo \"switchyard $*\" | sed 's/ *$//; s/ /-/g').1\n"
        "    test -s \"$page\" || echo \"there is no $page\"\n"
        "    for option in $($PROGRAM \"$@\" --help | grep -oE '^  --[a-z-]+'); do\n"
        "        sed 's/\\\\//g' \"$page\" | grep -q -- \"fB$option\" ||\n"
        "            echo \"$page has no $option\"\n"
        "        options=$((${options:-0} + 1))\n"
        "    done\n"
        "    for below in $($PROGRAM \"$@\" --help=table | sed -n 's/^command.\\([a-z]\\)/\\1/p' |"
        " cut -f 1 | grep -vx help); do walk \"$@\" $below; done\n" /* help has no page */
        "}\n"
        "walk\n"
        "echo \"$options options\"\n");
    int options = 0;
    CHECK_EXIT(o, 0);
    if (sscanf(o.out, "%d options\n", &options) != 1) fail_msg("%s", o.out);
    CHECK(options > 80);
}

/* A program whose `help` prints the table above it, and whose --version is a row of its table. */
static void commands_without_a_page_of_their_own_end_the_walk(void **state)
{
    Lab *lab = *state;
    Outcome o =
        shell(lab, "walk",
              "cat >fake <<'END'\n"
              "#!/bin/sh\n"
              "case $* in\n"
              "    'train --settings') printf 'Presets: a, b\\n\\n  x.y  1  what (p|q)\\n' ;;\n"
              "    'plan --settings') printf '  plan.z  1  what\\n' ;;\n"
              "    --help) printf 'options of every command:\\n  --loud   be\\n           "
              "loud\\n\\nend\\n' ;;\n"
              "    'do --help=table') printf 'name\\tswitchyard do\\nwhat\\tDo.\\n' ;;\n"
              "    *) printf 'name\\tswitchyard\\ncommand\\tdo\\tdo it\\n'\n"
              "       printf 'command\\thelp\\thelp\\ncommand\\t--version\\tsay it\\n' ;;\n"
              "esac\n"
              "END\n"
              "chmod +x fake\n"
              "mkdir pages\n"
              "timeout 10 $ROOT/tools/make_help ./fake man pages\n"
              "ls pages\n"
              "grep -hA1 --no-group-separator 'fB.-.-' pages/switchyard-do.1 pages/switchyard.1\n"
              "$ROOT/tools/make_help ./fake bash - | grep \"switchyard') echo '\"\n");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "switchyard-do.1\nswitchyard.1\n"
                      "\\fB\\-\\-loud\\fR\nbe loud\n"
                      "\\fB\\-\\-version\\fR\nsay it\n"
                      "\\fB\\-\\-loud\\fR\nbe loud\n"
                      "        'switchyard') echo 'do help' ;;\n"
                      "        'switchyard') echo '--version --loud' ;;\n");
}

static void man_pages_are_well_formed(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "mandoc");
    Outcome o = shell(lab, "cell",
                      "mandoc -T lint -W warning $BUILT/man/*.1 $ROOT/packaging/*.1 >&2 || exit 1\n"
                      "mandoc -T utf8 $BUILT/man/switchyard-data-prepare.1 | sed 's/.\b//g'\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "switchyard data prepare --tokenizer FILE --out PREFIX [option ...]");
    CHECK_SAYS(o.out, "--split file|blank|line");
    CHECK_SAYS(o.out, "default file");
    CHECK_SAYS(o.out, "EXIT STATUS");
    CHECK_SAYS(o.out, "switchyard-data(1)");
}

/* ---- completion ---- */

/* What bash offers for the last of `words`. */
static void check_offer(Lab *lab, const char *words, const char *want)
{
    char script[1024];
    snprintf(script, sizeof script,
             "cat >try <<'END'\n"
             ". $1/completion/switchyard\n"
             "COMP_WORDS=(switchyard %s)\n"
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
             "_switchyard\n"
             "echo \"${COMPREPLY[@]}\"\n"
             "END\n"
             "echo plain >x.yaml\n"
             "bash --norc try \"$BUILT\"",
             words);
    Outcome o = shell(lab, "completion", script);
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, want);
}

static void bash_completes_commands_options_presets_and_settings(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "bash");
    check_offer(lab, "da", "data\n");
    check_offer(lab, "--help tra", "train trace\n");
    check_offer(lab, "data tokenizer ''", "train convert\n");
    check_offer(lab, "data prepare --on", "--on-bad-line\n");
    check_offer(lab, "data prepare --split ''", "file blank line\n");
    check_offer(lab, "data prepare --split = b", "blank\n");
    check_offer(lab, "data prepare --out x", "x.yaml\n");
    check_offer(lab, "data prepare --sequence ''", "\n");
    check_offer(lab, "plan cal", "calibrate\n");
    check_offer(lab, "plan calibrate --b", "--base\n");
    check_offer(lab, "train quick", "quickstart\n");
    check_offer(lab, "train x", "x.yaml\n");
    check_offer(lab, "train quickstart run.comp", "run.compute=\n");
    check_offer(lab, "train x.yaml run.comp", "run.compute=\n");
    check_offer(lab, "train quickstart run.compute =", "f32 bf16 f16\n");
    check_offer(lab, "train quickstart run.compute = b", "bf16\n");
    check_offer(lab, "train quickstart run.tune = ''", "true false\n");
    check_offer(lab, "bench comm mesh.e", "mesh.ep= mesh.etp=\n");
    check_offer(lab, "plan quickstart plan.im", "plan.imbalance=\n");
    check_offer(lab, "plan quickstart search.recipe = r", "row\n");
    check_offer(lab, "train quickstart plan.im", "\n");
}

static void bash_completes_values(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "bash");
    check_offer(lab, "train quickstart mesh.schedule = z", "zb-h1 zbv\n");
    check_offer(lab, "plan quickstart search.schedule = du", "dualpipe dualpipe-v\n");
    check_offer(lab, "train quickstart moe.exchange = h", "hier\n");
    check_offer(lab, "train quickstart data.tokenizer = x", "x.yaml\n");
    check_offer(lab, "train quickstart run.dir = x", "x.yaml\n");
    check_offer(lab, "train quickstart eval.choices = x", "x.yaml\n");
    check_offer(lab, "train quickstart model.name = x", "\n");
    check_offer(lab, "train quickstart --resume =", "auto\n");
    check_offer(lab, "train quickstart --resume = a", "auto\n");
    check_offer(lab, "train quickstart --resume run.see", "run.seed=\n");
    check_offer(lab, "supervise x.yaml -- ''", "--ranks mpirun srun\n");
    check_offer(lab, "supervise x.yaml -- m", "mpirun\n");
    check_offer(lab, "train quickstart train.steps = ''", "\n");
    check_offer(lab, "train quickstart --resume --change mesh.p", "mesh.pp\n");
    check_offer(lab, "plan quickstart --cluster h2", "h200:\n");
    check_offer(lab, "supervise x.yaml --cluster mi32", "mi325x\n");
    check_offer(lab, "trace report x.json --gpu b3", "b300\n");
    check_offer(lab, "plan calibrate x --base x", "x.yaml\n");
    check_offer(lab, "plan calibrate x --base h10", "h100\n");
    check_offer(lab, "plan quickstart --why ''", "peak step comm bubble\n");
    check_offer(lab, "plan quickstart --from to", "torchtitan\n");
}

static void zsh_can_read_its_completion(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "zsh");
    CHECK_EXIT(shell(lab, "cell", "zsh -n $BUILT/completion/_switchyard"), 0);
}

/* zsh's own functions, which need a terminal, print what they are given. */
static void zsh_completes_values(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "zsh");
    Outcome o = shell(
        lab, "zsh",
        "cat >try <<'END'\n"
        "compset() { [[ ${words[CURRENT]} == *=* ]] && IPREFIX=\"${words[CURRENT]%%=*}=\" }\n"
        "compadd() { print -r -- ${@:#-*} }\n"
        "_files() { print files }\n"
        "_describe() { print settings }\n"
        "_arguments() { print -rl -- \"$@\" }\n"
        "words=(switchyard train x.yaml '') CURRENT=4\n"
        ". $1 >/dev/null\n"
        "for word in mesh.schedule=z run.compute= run.tune= run.dir= train.steps= mesh.s; do\n"
        "    words[4]=$word\n"
        "    print -r -- \"$word $(_switchyard_setting)\"\n"
        "done\n"
        "_switchyard_plan | grep -e '--cluster=' -e '--why='\n"
        "_switchyard_plan_calibrate | grep -e '--base='\n"
        "_switchyard_train | grep -e '--resume='\n"
        "END\n"
        "zsh -f try $BUILT/completion/_switchyard\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "mesh.schedule=z gpipe 1f1b interleaved 1f1b-overlap zb-h1 zbv dualpipe ");
    CHECK_SAYS(o.out, "run.compute= f32 bf16 f16\nrun.tune= true false\nrun.dir= files\n"
                      "train.steps= \nmesh.s settings\n");
    CHECK_SAYS(o.out, ":word:{ compadd -S \"\" -- a100\\: b200\\:");
    CHECK_SAYS(o.out, ":word:(peak step comm bubble)");
    CHECK_SAYS(o.out, "mi450; _files }");
    CHECK_SAYS(o.out, "--resume=-[");
    CHECK_SAYS(o.out, "::word:(auto)\n");
}

/* ---- packages ---- */

/* The release build's objects stand for the portable ones of `make deb`. */
static void the_debian_package_installs_runs_and_goes_again(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "dpkg-shlibdeps");
    skip_without(lab, "dpkg");
    if (geteuid() != 0) skip_without(lab, "fakeroot");
    Outcome o = shell(
        lab, "deb",
        "$MAKE install DESTDIR=\"$PWD/tree\" PREFIX=/usr LIBDIR=/usr/lib/$(gcc -print-multiarch)\n"
        "$ROOT/packaging/make_deb tree out\n"
        "deb=$(ls out/*.deb)\n"
        "mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/lib/dpkg/triggers\n"
        ": >root/var/lib/dpkg/status\n"
        "package() {\n"
        "    $(test $(id -u) = 0 || echo fakeroot) dpkg --root=\"$PWD/root\" --log=/dev/null "
        "--force-depends --force-unsafe-io "
        "--force-not-root"
        " --force-script-chrootless --force-bad-path \"$@\" >dpkg.log 2>&1 ||\n"
        "        { cat dpkg.log >&2; return 1; }\n"
        "}\n"
        "package -i $deb\n"
        "echo \"$deb\"\n"
        "root/usr/bin/switchyard --help\n"
        "find root/usr root/etc -not -type d 2>/dev/null | LC_ALL=C sort || :\n"
        "(cd root && md5sum --quiet -c var/lib/dpkg/info/switchyard.md5sums)\n"
        "package --purge switchyard\n"
        "find root -path root/var/lib/dpkg -prune -o -not -type d -print | sed 's/^/left: /'\n"
        "run=$($ROOT/tools/packages names run | tr '\\n' ' ')\n"
        "for name in $(dpkg-deb -f $deb Depends | sed 's/([^)]*)//g; s/,/ /g'); do\n"
        "    case \" libc6 $run \" in *\" $name \"*) ;; *) echo \"run lacks $name\" ;; esac\n"
        "done\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "out/switchyard_");
    CHECK_SAYS(o.out, "usage: switchyard COMMAND");
    CHECK_SAYS(o.out, "-linux-gnu/libswitchyard.so.1\n");
    CHECK_SAYS(o.out, "root/usr/share/doc/switchyard/copyright\n");
    CHECK_SAYS(o.out, "root/usr/share/man/man1/switchyard-train.1.gz\n");
    if (strstr(o.out, "left: ") != NULL) fail_msg("%s", o.out);
    if (strstr(o.out, "run lacks ") != NULL) fail_msg("%s", o.out);
}

/* Only tools/packages names packages, and what is copied is there. */
static void containers_are_built_of_what_is_there(void **state)
{
    Lab *lab = *state;
    Outcome o =
        shell(lab, "cell",
              "cd $ROOT\n"
              "for f in packaging/Containerfile packaging/Containerfile.cuda; do\n"
              "    grep -q '^RUN tools/packages$' $f && grep -q 'packages run' $f ||"
              " echo \"$f does not use tools/packages\"\n"
              "    ! grep -nE 'apt(-get|itude)? (-[^ ]+ )*install|dpkg -i' $f\n"
              "    for path in $(sed -n '/--from=/d; s/^COPY \\(.*\\) [^ ]*$/\\1/p' $f); do\n"
              "        test -e $path || echo \"$f copies $path, which is not there\"\n"
              "        copied=$((${copied:-0} + 1))\n"
              "    done\n"
              "done\n"
              "echo $copied\n");
    int copied = 0;
    CHECK_EXIT(o, 0);
    if (sscanf(o.out, "%d\n", &copied) != 1) fail_msg("%s", o.out);
    CHECK(copied > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(what_is_installed_runs_and_goes_again),
        LAB_TEST(a_program_finds_the_library_by_pkg_config),
        LAB_TEST(the_quickstart_trains_in_any_folder),
        LAB_TEST(every_command_has_a_man_page_with_its_options),
        LAB_TEST(commands_without_a_page_of_their_own_end_the_walk),
        LAB_TEST(man_pages_are_well_formed),
        LAB_TEST(bash_completes_commands_options_presets_and_settings),
        LAB_TEST(bash_completes_values),
        LAB_TEST(zsh_can_read_its_completion),
        LAB_TEST(zsh_completes_values),
        LAB_TEST(the_debian_package_installs_runs_and_goes_again),
        LAB_TEST(containers_are_built_of_what_is_there),
    };
    return LAB_RUN_ALL(tests);
}
