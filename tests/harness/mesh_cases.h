/* mesh_cases: every kind of mesh, and what goes together. */
#ifndef TESTS_HARNESS_MESH_CASES_H
#define TESTS_HARNESS_MESH_CASES_H

#include "harness/many.h"

#define DENSE "model.dense_layers=4", "model.layers=4"
#define MLA   "moe.experts=8", "model.layers=4"
#define GQA   "moe.experts=8", "model.layers=4", "attention.kind=gqa", "attention.kv_heads=1"
#define BATCH "train.batch=8", "train.micro_batch=1"
#define WORST "moe.buffers=worst"
#define EXACT "moe.buffers=exact", "run.executor=eager"

static const ManyCase mesh_cases[] = {
    /* data parallel: what is shared out, among whom */
    { "dp 2, zero 0", 2, { MLA, BATCH, "mesh.zero=0" } },
    { "dp 2, zero 1", 2, { MLA, BATCH, "mesh.zero=1" } },
    { "dp 2, zero 2", 2, { MLA, BATCH, "mesh.zero=2" } },
    { "dp 2, zero 3", 2, { MLA, BATCH, "mesh.zero=3" } },
    { "dp 4, zero 3", 4, { GQA, BATCH, "mesh.zero=3" } },
    { "dp 4, zero 1, shard 2", 4, { DENSE, BATCH, "mesh.zero=1", "mesh.shard=2" } },
    { "dp 4, zero 2, shard 2", 4, { MLA, BATCH, "mesh.zero=2", "mesh.shard=2" } },
    { "dp 8, zero 3, shard 4", 8, { GQA, BATCH, "mesh.zero=3", "mesh.shard=4" } },
    { "dp 2, zero 3, tied", 2, { MLA, BATCH, "mesh.zero=3", "model.tied=true" } },
    { "dp 2, recompute", 2, { MLA, BATCH, "mesh.zero=3", "recompute.layers=[0,1,2,3]" } },
    /* experts */
    { "ep 2", 2, { MLA, BATCH, WORST, "mesh.ep=2" } },
    { "ep 2, exact", 2, { MLA, BATCH, EXACT, "mesh.ep=2" } },
    { "ep 2, allgather", 2, { MLA, BATCH, WORST, "mesh.ep=2", "moe.exchange=allgather" } },
    { "ep 4", 4, { GQA, BATCH, WORST, "mesh.ep=4" } },
    { "ep 8", 8, { MLA, BATCH, WORST, "mesh.ep=8" } },
    { "dp 4, ep 2, zero 1", 4, { MLA, BATCH, WORST, "mesh.ep=2", "mesh.zero=1" } },
    { "dp 4, ep 2, zero 2", 4, { GQA, BATCH, WORST, "mesh.ep=2", "mesh.zero=2" } },
    { "dp 4, ep 2, zero 3", 4, { MLA, BATCH, WORST, "mesh.ep=2", "mesh.zero=3" } },
    { "dp 8, ep 4, shard 4, allgather",
      8,
      { MLA, BATCH, WORST, "mesh.ep=4", "mesh.shard=4", "moe.exchange=allgather" } },
    { "dp 8, ep 2, shard 2, zero 0",
      8,
      { GQA, BATCH, WORST, "mesh.ep=2", "mesh.shard=2", "mesh.zero=0" } },
    { "ep 2, bias", 2, { MLA, BATCH, WORST, "mesh.ep=2", "moe.bias_rate=0.01" } },
    { "ep 2, recompute",
      2,
      { MLA, BATCH, WORST, "mesh.ep=2", "recompute.layers=[0,1,2,3]",
        "recompute.pieces=[exchange,norm,act]" } },
    { "ep 2, recompute layers",
      2,
      { MLA, BATCH, WORST, "mesh.ep=2", "recompute.layers=[0,1,2,3]" } },
    /* context */
    { "cp 2", 2, { MLA, BATCH, "mesh.cp=2" } },
    { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2" } },
    { "cp 2, dp 2, normalised heads",
      4,
      { GQA, BATCH, "mesh.cp=2", "mesh.zero=3", "attention.qk_norm=rms", "recompute.layers=[1,2]",
        "recompute.pieces=[attn_up]" } },
    { "cp 4, dense", 4, { DENSE, BATCH, "mesh.cp=4" } },
    { "cp 2, dp 2, zero 3", 4, { MLA, BATCH, "mesh.cp=2", "mesh.zero=3" } },
    { "cp 2, dp 2, zero 2", 4, { GQA, BATCH, "mesh.cp=2", "mesh.zero=2" } },
    { "cp 2, no documents", 2, { MLA, BATCH, "mesh.cp=2", "attention.document_mask=false" } },
    /* pipelines */
    { "pp 2", 2, { MLA, BATCH, "mesh.pp=2" } },
    { "pp 4", 4, { GQA, BATCH, "mesh.pp=4" } },
    { "pp 2, interleaved",
      2,
      { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved" } },
    { "pp 2, zbv", 2, { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv" } },
    { "pp 2, zb1p", 2, { DENSE, BATCH, "mesh.pp=2", "mesh.schedule=zb1p" } },
    { "pp 2, dualpipe-v",
      2,
      { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe-v" } },
    { "pp 2, layout", 2, { MLA, BATCH, "mesh.pp=2", "mesh.layout=Ettt|tL" } },
    { "pp 2, tied", 2, { MLA, BATCH, "mesh.pp=2", "model.tied=true" } },
    /* pairs and triples */
    { "pp 2, dp 2, zero 1", 4, { MLA, BATCH, "mesh.pp=2", "mesh.zero=1" } },
    { "pp 2, dp 2, zero 2", 4, { MLA, BATCH, "mesh.pp=2", "mesh.zero=2" } },
    { "pp 2, dp 2, zero 3, tied",
      4,
      { MLA, BATCH, "mesh.pp=2", "mesh.zero=3", "model.tied=true" } },
    { "pp 2, ep 2", 4, { MLA, BATCH, WORST, "mesh.pp=2", "mesh.ep=2" } },
    { "pp 2, ep 2, zb-h1",
      4,
      { GQA, BATCH, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.schedule=zb-h1", "mesh.zero=2" } },
    { "pp 2, ep 2, dualpipe",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=dualpipe" } },
    { "pp 2, ep 2, 1f1b-overlap",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap" } },
    { "pp 2, ep 2, 1f1b-overlap, exact",
      4,
      { MLA, BATCH, EXACT, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap" } },
    { "pp 2, ep 2 over cp 2, 1f1b-overlap",
      4,
      { GQA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.cp=2",
        "mesh.schedule=1f1b-overlap" } },
    { "pp 2, cp 2", 4, { MLA, BATCH, "mesh.pp=2", "mesh.cp=2" } },
    { "pp 2, cp 2, zbv",
      4,
      { GQA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.cp=2", "mesh.schedule=zbv" } },
    { "ep 2 over cp 2", 2, { MLA, BATCH, WORST, "mesh.ep=2", "mesh.cp=2" } },
    { "ep 4 over cp 2 and dp 2, zero 3",
      4,
      { GQA, BATCH, WORST, "mesh.ep=4", "mesh.cp=2", "mesh.zero=3" } },
    { "pp 2, ep 2, dp 2 (shard), replicas",
      8,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.shard=2", "mesh.zero=1" } },
    { "pp 2, cp 2, ep 4, zero 3",
      8,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.cp=2", "mesh.ep=4", "mesh.zero=3" } },
    { "pp 2, interleaved, cp 2, ep 2",
      4,
      { GQA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved", "mesh.cp=2",
        "mesh.ep=2" } },
    { "pp 4, ep 2", 8, { MLA, BATCH, WORST, "mesh.pp=4", "mesh.ep=2", "mesh.zero=2" } },
};
enum { MESH_CASES = sizeof mesh_cases / sizeof *mesh_cases };

#endif
