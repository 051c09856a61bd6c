/* text: the doctor's table as text and as JSON. */
#include "doctor/doctor_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { NAMES_BYTES = 192 };

/* "rank 3 (host b)" or "rank 3 (b) with rank 5 (c)". */
static const char *name_ranks(const Doctor *d, const DoctorSample *s, char out[NAMES_BYTES])
{
    const char *host = d->all[s->rank].host.text;
    int n = snprintf(out, NAMES_BYTES, "rank %d (host %.60s)", s->rank, host);
    if (s->peer >= 0)
        (void)snprintf(out + n, NAMES_BYTES - (size_t)n, " with rank %d (host %.60s)", s->peer,
                       d->all[s->peer].host.text);
    return out;
}

static const char *const against_words[] = { "", "", ", by the others", ", by the data sheet" };

/* "    rank 1 (host b): bad, 0.5 cores (limit 1): it may use 1, which rank 0 may use, too". */
static Status print_finding(const Doctor *d, const DoctorRow *row, const DoctorFinding *f,
                            Text *out)
{
    char names[NAMES_BYTES];
    const DoctorRule *r = &doctor_rules[row->check];
    const DoctorSample *s = f->sample;
    TRY(text_printf(out, "    %s: %s", name_ranks(d, s, names), doctor_verdict_names[f->verdict]));
    if (f->against != AGAINST_NOTHING && s->value != 0) /* 0: a failure, which says more */
        TRY(text_printf(out, ", %.4g%s%s (limit %.3g%s)", s->value, r->unit[0] == '\0' ? "" : " ",
                        r->unit, f->limit, against_words[f->against]));
    return text_printf(out, "%s%s\n", s->why[0] == '\0' ? "" : ": ", s->why);
}

/* A check without a sample: there is nothing to compare. */
static Status print_row(const Doctor *d, const DoctorRow *row, Text *out)
{
    const DoctorRule *r = &doctor_rules[row->check];
    if (row->samples == 0) return OK;
    TRY(text_printf(out, "%-24s %-8s", r->name, doctor_verdict_names[row->verdict]));
    if (row->known == 0)
        TRY(text_printf(out, "%10s %10s %10s", "-", "-", "-"));
    else
        TRY(text_printf(out, "%10.4g %10.4g %10.4g", row->least, row->median, row->most));
    TRY(text_printf(out, "%s%s\n", r->unit[0] == '\0' ? "" : "  ", r->unit));
    for (int i = 0; i < row->findings; i++) TRY(print_finding(d, row, &row->finding[i], out));
    if (row->odd > row->findings)
        TRY(text_printf(out, "    and %" PRId64 " more\n", row->odd - row->findings));
    if (row->verdict < DOCTOR_SLOW) return OK;
    return text_printf(out, "    what to do: %s\n", r->advice);
}

static int count_hosts(const Doctor *d)
{
    int hosts = 0;
    for (int r = 0; r < d->ranks; r++) hosts += d->all[r].local == 0;
    return hosts;
}

Status doctor_print_text(const Doctor *d, const DoctorRow *row, Text *out)
{
    int hosts = count_hosts(d);
    TRY(text_printf(out, "%d rank%s on %d host%s%s; disk: %s; processor: %s%s%s\n", d->ranks,
                    d->ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s", comm_launched_how(),
                    d->options->folder, d->cpu_text,
                    d->gpu_text[0] == '\0' ? "" : "; GPU: ", d->gpu_text));
    TRY(text_printf(out, "%-24s %-8s%10s %10s %10s  %s\n", "check", "verdict", "least", "median",
                    "most", "unit"));
    for (int c = 0; c < DOCTOR_CHECKS; c++) TRY(print_row(d, &row[c], out));
    return OK;
}

/* ---- JSON ---- */

static Status print_json_finding(const Doctor *d, const DoctorFinding *f, Text *out)
{
    static const char *const against[] = { "nothing", "value", "peers", "sheet" };
    const DoctorSample *s = f->sample;
    TRY(text_json(out, "{\"rank\":%d,\"host\":%s,", s->rank, d->all[s->rank].host.text));
    if (s->peer >= 0)
        TRY(text_json(out, "\"peer\":%d,\"peer_host\":%s,", s->peer, d->all[s->peer].host.text));
    return text_json(out, "\"verdict\":%s,\"value\":%g,\"against\":%s,\"limit\":%g,\"why\":%s}",
                     doctor_verdict_names[f->verdict], s->value, against[f->against], f->limit,
                     s->why);
}

/* Each sample as [rank, peer, value, expected]; the peer of a sample of one rank is -1. */
static Status print_json_samples(DoctorCheck check, const DoctorSample *s, int64_t n, Text *out)
{
    const char *comma = "";
    for (int64_t i = 0; i < n; i++) {
        if (s[i].check != (int32_t)check) continue;
        TRY(text_printf(out, "%s", comma));
        TRY(text_json(out, "[%d,%d,%g,%g]", s[i].rank, s[i].peer, s[i].value, s[i].expected));
        comma = ",";
    }
    return OK;
}

static Status print_json_row(const Doctor *d, const DoctorRow *row, const DoctorSample *sample,
                             int64_t n, Text *out)
{
    const DoctorRule *r = &doctor_rules[row->check];
    TRY(text_json(
        out, "{\"check\":%s,\"unit\":%s,\"verdict\":%s,\"least\":%g,\"median\":%g,\"most\":%g,",
        r->name, r->unit, doctor_verdict_names[row->verdict], row->least, row->median, row->most));
    TRY(text_printf(out, "\"limits\":\""));
    TRY(doctor_print_limits(r, out));
    TRY(text_json(out, "\",\"odd\":%d,\"advice\":%s,\"findings\":[", (int)row->odd, r->advice));
    for (int i = 0; i < row->findings; i++) {
        TRY(text_printf(out, "%s", i == 0 ? "" : ","));
        TRY(print_json_finding(d, &row->finding[i], out));
    }
    TRY(text_printf(out, "],\"samples\":["));
    TRY(print_json_samples(row->check, sample, n, out));
    return text_printf(out, "]}");
}

Status doctor_print_json(const Doctor *d, const DoctorRow *row, const DoctorSample *sample,
                         int64_t samples, Text *out)
{
    const char *comma = "";
    TRY(text_json(out,
                  "{\"ranks\":%d,\"hosts\":%d,\"folder\":%s,\"processor\":%s,\"gpu\":%s,\"rows\":[",
                  d->ranks, count_hosts(d), d->options->folder, d->cpu_text, d->gpu_text));
    for (int c = 0; c < DOCTOR_CHECKS; c++) {
        if (row[c].samples == 0) continue;
        TRY(text_printf(out, "%s\n", comma));
        TRY(print_json_row(d, &row[c], sample, samples, out));
        comma = ",";
    }
    return text_printf(out, "]}\n");
}
