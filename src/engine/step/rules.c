/* rules: the table of the step's rules, and the walks over it. */
#include "engine/step/step_rule.h"

#include <string.h>

const StepRule *const step_rules[STEP_RULES] = {
#define STEP_RULE(NAME, name, wanted) &step_rule_##name,
#include "engine/model/rules.def"
#undef STEP_RULE
};

const StepRule *rules_next(const ModelSpec *s, int *i)
{
    while (*i < STEP_RULES && !optimizer_follows(&s->optimizer, *i)) ++*i;
    return *i < STEP_RULES ? step_rules[(*i)++] : NULL;
}

RuleState rules_begin(const Config *c, const RuleState *saved)
{
    RuleState s;
    memset(&s, 0, sizeof s);
    if (saved != NULL) s = *saved;
    for (int i = 0; i < STEP_RULES; i++)
        if (step_rules[i]->begin != NULL) step_rules[i]->begin(c, &s);
    return s;
}

RuleState rules_save(const EngineParams *w)
{
    RuleState s = w->kept;
    for (int i = 0; i < STEP_RULES; i++)
        if (step_rules[i]->save != NULL) step_rules[i]->save(w->spec, &s);
    return s;
}
