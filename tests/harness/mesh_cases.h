/* mesh_cases: every kind of mesh, and what goes together. */
#ifndef TESTS_HARNESS_MESH_CASES_H
#define TESTS_HARNESS_MESH_CASES_H

#include "harness/many.h"

#define DENSE  "model.dense_layers=4", "model.layers=4"
#define MLA    "moe.experts=8", "model.layers=4"
#define GQA    "moe.experts=8", "model.layers=4", "attention.kind=gqa", "attention.kv_heads=1"
#define BIASES "attention.bias=true", "attention.out_bias=true"
#define SCORED "moe.score_input=true", "moe.top_k=1", "moe.score=sigmoid"
#define BATCH  "train.batch=8", "train.micro_batch=1"
#define WORST  "moe.buffers=worst"
#define POOLED "moe.buffers=pooled", "moe.pool_factor=1.5"
#define HIER   "moe.exchange=hier"
#define DIRECT "moe.exchange=direct"
#define WINDOW "attention.window=5", "attention.full_every=2", "attention.sinks=true"
#define DROPS  "moe.capacity=0.7", "train.batch=8", "train.micro_batch=2"
/* A limit that many of the tiny model's gates and ups reach. Its gradients jump there, so a last bit
 * grows: by limit and build the third step's losses are 2e-5 apart, or another expert is chosen. */
/* Sizes that two and four ranks of tp divide. */
#define TP2     "mesh.tp=2", "model.vocab=64", "mesh.tp_pieces=1"
#define TP4     "mesh.tp=4", "model.vocab=64", "attention.heads=4"
#define GPT_OSS "moe.expert_bias=true", "moe.activation=clamped", "moe.limit=0.3"

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
    { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2" } },
    { "ep 2, a pool, allgather, recompute",
      2,
      { GQA, BATCH, POOLED, "mesh.ep=2", "moe.exchange=allgather", "recompute.layers=[1,2]",
        "recompute.pieces=[exchange,norm,act]" } },
    { "ep 2, allgather", 2, { MLA, BATCH, WORST, "mesh.ep=2", "moe.exchange=allgather" } },
    { "ep 4", 4, { GQA, BATCH, WORST, "mesh.ep=4" } },
    { "ep 4, hier over 2 hosts",
      4,
      { MLA, BATCH, WORST, "mesh.ep=4", HIER, "mesh.ranks_per_host=2" } },
    { "ep 4, hier over 4 hosts",
      4,
      { GQA, BATCH, WORST, "mesh.ep=4", HIER, "mesh.ranks_per_host=1" } },
    { "ep 8, hier over 2 hosts",
      8,
      { MLA, BATCH, WORST, "mesh.ep=8", HIER, "mesh.ranks_per_host=4" } },
    { "ep 8, hier over 4 hosts",
      8,
      { MLA, BATCH, WORST, "mesh.ep=8", HIER, "mesh.ranks_per_host=2" } },
    { "dp 8, ep 4, hier over 2 hosts, recompute",
      8,
      { GQA, BATCH, WORST, "mesh.ep=4", HIER, "mesh.ranks_per_host=2", "mesh.zero=2",
        "recompute.layers=[0,1,2,3]", "recompute.pieces=[exchange,norm,act]" } },
    { "pp 2, ep 4, hier over 2 hosts, 1f1b-overlap",
      8,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=4", HIER, "mesh.ranks_per_host=2",
        "mesh.schedule=1f1b-overlap" } },
    { "ep 2, direct", 2, { MLA, BATCH, WORST, "mesh.ep=2", DIRECT } },
    { "ep 2, direct, bounded",
      2,
      { MLA, BATCH, "moe.buffer_factor=1.2", "mesh.ep=2", DIRECT, "moe.bias_rate=0.01" } },
    { "ep 4, direct", 4, { GQA, BATCH, WORST, "mesh.ep=4", DIRECT } },
    { "ep 8, direct", 8, { MLA, BATCH, WORST, "mesh.ep=8", DIRECT } },
    { "dp 4, ep 2, zero 2, direct, recompute",
      4,
      { MLA, BATCH, WORST, "mesh.ep=2", "mesh.zero=2", DIRECT, "recompute.layers=[0,1,2,3]",
        "recompute.pieces=[exchange,norm,act]" } },
    { "ep 2, direct, recompute layers",
      2,
      { MLA, BATCH, WORST, "mesh.ep=2", DIRECT, "recompute.layers=[0,1,2,3]" } },
    { "pp 2, ep 2, direct, 1f1b-overlap",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", DIRECT,
        "mesh.schedule=1f1b-overlap" } },
    { "ep 4 over cp 2 and dp 2, zero 3, direct",
      4,
      { GQA, BATCH, WORST, "mesh.ep=4", "mesh.cp=2", "mesh.zero=3", DIRECT } },
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
    /* experts that ranks share */
    { "etp 2", 2, { MLA, BATCH, WORST, "mesh.etp=2" } },
    { "ep 2, etp 2, a pool, drops", 4, { MLA, DROPS, POOLED, "mesh.ep=2", "mesh.etp=2" } },
    { "etp 4, zero 3, direct, recompute",
      4,
      { GQA, BATCH, WORST, "mesh.etp=4", "mesh.zero=3", "moe.ffn=24", DIRECT,
        "recompute.layers=[0,1,2,3]", "recompute.pieces=[exchange,norm,act]" } },
    { "dp 8, ep 2, etp 2, zero 2, hier over 2 hosts",
      8,
      { MLA, BATCH, WORST, "mesh.ep=2", "mesh.etp=2", "mesh.zero=2", HIER,
        "mesh.ranks_per_host=2" } },
    { "ep 2, etp 2, allgather, scored inputs",
      4,
      { MLA, BATCH, WORST, "mesh.ep=2", "mesh.etp=2", "moe.exchange=allgather", SCORED } },
    { "pp 2, etp 2, biases of experts, zero 1",
      4,
      { GQA, BATCH, WORST, GPT_OSS, "mesh.pp=2", "mesh.etp=2", "mesh.zero=1" } },
    { "tp 2, cp 2, ep 2, etp 2",
      4,
      { MLA, BATCH, WORST, TP2, "mesh.cp=2", "mesh.ep=2", "mesh.etp=2" } },
    /* context */
    { "cp 2", 2, { MLA, BATCH, "mesh.cp=2" } },
    { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2" } },
    { "cp 2, dp 2, normalised heads",
      4,
      { GQA, BATCH, "mesh.cp=2", "mesh.zero=3", "attention.qk_norm=rms", "recompute.layers=[1,2]",
        "recompute.pieces=[attn_up]" } },
    { "cp 2, dp 2, zero 3, biases, stretched",
      4,
      { MLA, BATCH, BIASES, "mesh.cp=2", "mesh.zero=3", "rope.scaling=yarn", "rope.factor=4",
        "rope.original=8" } },
    { "cp 2, dp 2, biases, layers without positions",
      4,
      { GQA, BATCH, BIASES, "mesh.cp=2", "mesh.zero=2", "attention.qk_norm=width",
        "attention.rotary=0.5", "attention.nope_every=2", "attention.temper_floor=5" } },
    { "cp 4, dense", 4, { DENSE, BATCH, "mesh.cp=4" } },
    { "cp 2, dp 2, zero 3", 4, { MLA, BATCH, "mesh.cp=2", "mesh.zero=3" } },
    { "cp 2, dp 2, zero 2", 4, { GQA, BATCH, "mesh.cp=2", "mesh.zero=2" } },
    { "cp 2, dp 2, windows and sinks",
      4,
      { GQA, BATCH, WINDOW, "mesh.cp=2", "mesh.zero=3", "recompute.layers=[0]" } },
    { "cp 2, chunks", 2, { MLA, BATCH, "mesh.cp=2", "attention.chunk=10" } },
    { "cp 2, no documents", 2, { MLA, BATCH, "mesh.cp=2", "attention.document_mask=false" } },
    /* pipelines */
    { "pp 2", 2, { MLA, BATCH, "mesh.pp=2" } },
    { "pp 4", 4, { GQA, BATCH, "mesh.pp=4" } },
    { "pp 2, interleaved",
      2,
      { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved" } },
    { "pp 2, zbv", 2, { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv" } },
    { "pp 2, zb-h1", 2, { DENSE, BATCH, "mesh.pp=2", "mesh.schedule=zb-h1" } },
    { "pp 2, dualpipe", 2, { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe" } },
    { "pp 2, dualpipe-v",
      2,
      { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe-v" } },
    { "pp 2, zb-h1, biases", 2, { GQA, BATCH, BIASES, "mesh.pp=2", "mesh.schedule=zb-h1" } },
    { "pp 2, layout", 2, { MLA, BATCH, "mesh.pp=2", "mesh.layout=Ettt|tL" } },
    { "pp 2, tied", 2, { MLA, BATCH, "mesh.pp=2", "model.tied=true" } },
    /* experts whose inputs, and shared ones whose outputs, are weighed */
    { "ep 2, scored inputs, a gate",
      2,
      { MLA, BATCH, WORST, "mesh.ep=2", SCORED, "moe.shared_gate=true", "moe.every=2" } },
    { "ep 4, direct, scored inputs, rows fetched again",
      4,
      { GQA, BATCH, WORST, "mesh.ep=4", DIRECT, SCORED, "recompute.layers=[0,1,2,3]",
        "recompute.pieces=[exchange,norm,shared]", "moe.shared_gate=true" } },
    { "dp 2, zero 3, a gate, router's biases, recompute",
      2,
      { MLA, BATCH, "mesh.zero=3", "moe.shared_gate=true", "moe.router_bias=true",
        "recompute.layers=[1,2]" } },
    { "cp 2, scored inputs, a gate, zb-h1, pp 2",
      4,
      { GQA, BATCH, "mesh.cp=2", SCORED, "moe.shared_gate=true", "mesh.pp=2",
        "mesh.schedule=zb-h1" } },
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
    { "pp 2, ep 2, a pool, 1f1b-overlap",
      4,
      { MLA, BATCH, POOLED, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2",
        "mesh.schedule=1f1b-overlap" } },
    { "pp 2, ep 2, a pool, zb-h1",
      4,
      { MLA, BATCH, POOLED, "mesh.pp=2", "mesh.ep=2", "mesh.schedule=zb-h1" } },
    { "pp 2, ep 2 over cp 2, 1f1b-overlap",
      4,
      { GQA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.cp=2",
        "mesh.schedule=1f1b-overlap" } },
    { "pp 2, cp 2", 4, { MLA, BATCH, "mesh.pp=2", "mesh.cp=2" } },
    { "pp 2, cp 2, zbv",
      4,
      { GQA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.cp=2", "mesh.schedule=zbv" } },
    { "ep 2 over cp 2, gelu",
      2,
      { MLA, BATCH, WORST, "mesh.ep=2", "mesh.cp=2", "moe.activation=gelu" } },
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
    { "pp 2, zb-h1, windows and sinks",
      2,
      { GQA, BATCH, WINDOW, "mesh.pp=2", "mesh.schedule=zb-h1" } },
    /* experts with biases: a parameter of another rank, and of fewer dimensions */
    { "ep 2, expert biases", 2, { MLA, BATCH, POOLED, "mesh.ep=2", GPT_OSS } },
    { "dp 4, ep 2, zero 3, expert biases",
      4,
      { GQA, BATCH, WORST, "mesh.ep=2", "mesh.zero=3", "recompute.layers=[1,2]", GPT_OSS } },
    { "dp 2, zero 2, expert biases", 2, { MLA, BATCH, "mesh.zero=2", GPT_OSS } },
    { "pp 2, ep 2, zb-h1, expert biases",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.schedule=zb-h1", GPT_OSS } },
    /* places that passes over inputs alone use, too */
    { "cp 2, zero 3, zb-h1", 2, { MLA, BATCH, "mesh.cp=2", "mesh.zero=3", "mesh.schedule=zb-h1" } },
    { "pp 2, cp 2, zero 2, zbv",
      4,
      { GQA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.cp=2", "mesh.zero=2", "mesh.schedule=zbv" } },
    { "dp 2, zero 3, tied, 1f1b-overlap",
      2,
      { "moe.experts=8", "model.dense_layers=0", BATCH, "model.tied=true", "mesh.zero=3",
        "mesh.schedule=1f1b-overlap" } },
    /* capacities that compare what context ranks have */
    { "cp 2, capacity", 2, { GQA, DROPS, "moe.aux_loss=0", "mesh.cp=2" } },
    { "dp 2, cp 2, zero 3, capacity", 4, { MLA, DROPS, "mesh.cp=2", "mesh.zero=3" } },
    { "ep 2 over cp 2, capacity, mtp, recompute",
      2,
      { MLA, DROPS, WORST, "mesh.ep=2", "mesh.cp=2", "mtp.layers=1",
        "recompute.layers=[0,1,2,3,4]" } },
    { "pp 2, cp 4, capacity, zb-h1",
      8,
      { GQA, DROPS, "mesh.pp=2", "mesh.cp=4", "mesh.schedule=zb-h1" } },
    { "pp 2, ep 2 over cp 2, capacity, 1f1b-overlap",
      4,
      { MLA, DROPS, POOLED, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.cp=2",
        "mesh.schedule=1f1b-overlap" } },
    /* multi-token prediction: the head's weights and the table in several layers */
    { "dp 2, zero 0, mtp", 2, { MLA, BATCH, "mesh.zero=0", "mtp.layers=1" } },
    { "dp 2, zero 2, mtp 2, tied",
      2,
      { MLA, BATCH, "mesh.zero=2", "mtp.layers=2", "model.tied=true" } },
    { "dp 4, zero 3, mtp 2, recompute",
      4,
      { GQA, BATCH, "mesh.zero=3", "mtp.layers=2", "recompute.layers=[0,1,2,3,4,5]" } },
    { "dp 4, zero 2, shard 2, mtp 2",
      4,
      { MLA, BATCH, "mesh.zero=2", "mesh.shard=2", "mtp.layers=2" } },
    { "ep 2, a pool, mtp",
      2,
      { MLA, BATCH, POOLED, "mesh.ep=2", "mtp.layers=1", "moe.bias_rate=0.01" } },
    { "cp 2, mtp 2", 2, { MLA, BATCH, "moe.score=sigmoid", "mesh.cp=2", "mtp.layers=2" } },
    { "ep 2 over cp 2 and dp 2, zero 3, mtp",
      4,
      { GQA, BATCH, WORST, "mesh.ep=2", "mesh.cp=2", "mesh.zero=3", "mtp.layers=1" } },
    { "pp 2, mtp 2", 2, { GQA, BATCH, "mesh.pp=2", "mtp.layers=2", "mesh.layout=Et*3|tmmL" } },
    { "pp 2, mtp, tied, zb-h1, dp 2, zero 2",
      4,
      { MLA, BATCH, "mesh.pp=2", "mesh.zero=2", "mtp.layers=1", "model.tied=true",
        "mesh.schedule=zb-h1" } },
    { "pp 2, mtp, dp 2, zero 3, zb-h1",
      4,
      { MLA, BATCH, "mesh.pp=2", "mesh.zero=3", "mtp.layers=1", "mesh.schedule=zb-h1" } },
    { "pp 2, mtp, zbv",
      2,
      { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mtp.layers=2", "mesh.schedule=zbv" } },
    { "pp 2, ep 2, mtp, 1f1b-overlap",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mtp.layers=1",
        "mesh.schedule=1f1b-overlap" } },
    { "pp 2, ep 2, mtp 2, dualpipe",
      4,
      { MLA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mtp.layers=2",
        "mesh.schedule=dualpipe" } },
    { "pp 4, ep 2", 8, { MLA, BATCH, WORST, "mesh.pp=4", "mesh.ep=2", "mesh.zero=2" } },
    /* gated delta nets: their sequences are whole on each rank */
    { "dp 2, zero 3, delta, recompute layers",
      2,
      { MLA, DELTA, BATCH, "mesh.zero=3", "recompute.layers=[0,1,2,3]" } },
    { "dp 4, ep 2, zero 2, delta, recompute",
      4,
      { GQA, DELTA, BATCH, WORST, "mesh.ep=2", "mesh.zero=2", "recompute.layers=[0,1]",
        "recompute.pieces=[norm,attn_up,act]" } },
    { "dp 4, shard 2, zero 1, delta", 4, { DENSE, DELTA, BATCH, "mesh.zero=1", "mesh.shard=2" } },
    { "pp 2, delta, mtp", 2, { GQA, DELTA, BATCH, "mesh.pp=2", "mtp.layers=1" } },
    { "pp 2, delta, zb-h1", 2, { MLA, DELTA, BATCH, "mesh.pp=2", "mesh.schedule=zb-h1" } },
    { "pp 2, ep 2, delta, 1f1b-overlap",
      4,
      { MLA, DELTA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2",
        "mesh.schedule=1f1b-overlap" } },
    { "pp 2, ep 2, delta, dualpipe",
      4,
      { GQA, DELTA, BATCH, WORST, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2",
        "mesh.schedule=dualpipe" } },
    /* tensor parallel */
    { "tp 2, dense", 2, { DENSE, BATCH, TP2, "mesh.zero=0" } },
    { "tp 2", 2, { MLA, BATCH, TP2 } },
    { "tp 2, one head of keys, four sequences", 2, { GQA, TP2 } },
    { "tp 4, two heads of keys", 4, { GQA, BATCH, TP4, "attention.kv_heads=2" } },
    { "tp 2, query latents, biases", 2, { MLA, BATCH, BIASES, TP2, "attention.q_rank=16" } },
    { "tp 2, biases, sinks, windows", 2, { GQA, BATCH, BIASES, WINDOW, TP2, "mesh.zero=1" } },
    { "tp 2, normalised heads", 2, { GQA, BATCH, TP2, "attention.qk_norm=rms", "mesh.zero=2" } },
    { "tp 2, gates", 2, { GQA, BATCH, TP2, GATE, "mesh.zero=1" } },
    { "tp 2, cp 2, gates, recompute",
      4,
      { GQA, BATCH, TP2, GATE, "mesh.cp=2", "recompute.layers=[0,1,2,3]",
        "recompute.pieces=[norm,attn_up]" } },
    { "pp 2, gates, zb-h1", 2, { GQA, BATCH, GATE, "mesh.pp=2", "mesh.schedule=zb-h1" } },
    { "pp 2, gates, delta, recompute",
      2,
      { GQA, DELTA, BATCH, GATE, "mesh.pp=2", "recompute.layers=[0,1,2,3]" } },
    { "tp 2, recompute pieces",
      2,
      { MLA, BATCH, TP2, "recompute.layers=[0,1,2,3]",
        "recompute.pieces=[norm,attn_up,act,shared,exchange]" } },
    { "tp 2, recompute layers",
      2,
      { GQA, BATCH, TP2, "model.dense_layers=2", "recompute.layers=[0,1,2,3]" } },
    { "tp 2, tied, mtp", 2, { MLA, BATCH, TP2, "model.tied=true", "mtp.layers=2" } },
    { "tp 2, capacity", 2, { GQA, DROPS, TP2 } },
    { "tp 2, cp 2, capacity", 4, { MLA, DROPS, TP2, "mesh.cp=2", "mesh.zero=3" } },
    { "tp 2, dp 2, zero 1", 4, { GQA, BATCH, TP2, "mesh.zero=1" } },
    { "tp 2, dp 2, zero 2", 4, { MLA, BATCH, TP2, "mesh.zero=2" } },
    { "tp 2, dp 2, zero 3, a shared gate",
      4,
      { MLA, BATCH, TP2, "mesh.zero=3", "moe.shared_gate=true" } },
    { "tp 4, dp 2, zero 3, one head of keys", 8, { GQA, BATCH, TP4, "mesh.zero=3" } },
    { "tp 2, dp 2, replicas", 4, { MLA, BATCH, TP2, "mesh.shard=1", "mesh.zero=2" } },
    { "tp 2, ep 2", 2, { MLA, BATCH, WORST, TP2, "mesh.ep=2" } },
    { "tp 2, ep 2, zero 2, nothing that both have a shard of",
      2,
      { GQA, BATCH, WORST, TP2, "mesh.ep=2", "mesh.zero=2", "moe.shared=0" } },
    { "tp 2, ep 4 over dp 2, a pool", 4, { GQA, BATCH, POOLED, TP2, "mesh.ep=4" } },
    { "tp 2, ep 2, global", 2, { MLA, BATCH, WORST, TP2, "mesh.ep=2", "moe.aux_scope=global" } },
    { "tp 2, cp 2, ep 4, gqa", 4, { GQA, BATCH, WORST, TP2, "mesh.cp=2", "mesh.ep=4" } },
    { "tp 2, pp 2", 4, { MLA, BATCH, TP2, "mesh.pp=2", "mesh.zero=2" } },
    { "tp 2, pp 2, zb-h1, tied",
      4,
      { GQA, BATCH, TP2, "mesh.pp=2", "mesh.schedule=zb-h1", "model.tied=true" } },
    { "tp 2, pp 2, zbv, mtp",
      4,
      { MLA, BATCH, TP2, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "mtp.layers=1" } },
    { "tp 2, pp 2, ep 2, 1f1b-overlap",
      4,
      { MLA, BATCH, WORST, TP2, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2",
        "mesh.schedule=1f1b-overlap", "model.dense_layers=1" } },
    { "tp 2, pp 2, ep 2, dualpipe",
      4,
      { GQA, BATCH, WORST, TP2, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2",
        "mesh.schedule=dualpipe" } },
};
enum { MESH_CASES = sizeof mesh_cases / sizeof *mesh_cases };

/* Whether it has a setting that begins like this; NULL: always. */
static inline bool case_sets(const ManyCase *c, const char *setting)
{
    bool sets = setting == NULL;
    for (int i = 0; !sets && c->settings[i] != NULL; i++)
        sets = strncmp(c->settings[i], setting, strlen(setting)) == 0;
    return sets;
}

/* Of so many steps those that are compared: two where gradients jump. Of a capacity it is one, with its
 * gradients: weights of like tokens are so close that after an update their last bits decide which
 * of them is dropped. */
static inline int case_steps(const ManyCase *c, int steps)
{
    if (case_sets(c, "moe.capacity") && steps > 1) return 1;
    return case_sets(c, "moe.activation=clamped") && steps > 2 ? 2 : steps;
}

/* 1 if `compare`, which gets the case, fails on a rank; the failure is printed. */
static inline int case_wrong(const ManyCase *c, Status (*compare)(void *, Comm *))
{
    int failed = -1;
    Status s = comm_threads(c->ranks, 60, compare, (void *)(uintptr_t)c, &failed);
    if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
    return s != OK;
}

/* The number of schedules on which `compare` fails, on four ranks. */
static inline int schedules_wrong(Status (*compare)(void *, Comm *))
{
    int n = 0;
    for (int d = 0; d < schedule_table_n; d++) {
        const ScheduleDesc *s = &schedule_table[d];
        char schedule[64], chunks[32];
        (void)snprintf(schedule, sizeof schedule, "mesh.schedule=%s", s->name);
        (void)snprintf(chunks, sizeof chunks, "mesh.vpp=%d", s->chunks_least);
        ManyCase c = { s->name,
                       4,
                       { MLA, BATCH, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.zero=2", schedule,
                         chunks } };
        n += case_wrong(&c, compare);
    }
    return n;
}

#endif
