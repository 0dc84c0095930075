// SPDX-License-Identifier: Apache-2.0
// Pairs of FASTQ files -> sorted BAM files with indexes -> samtools flagstat.
// Nextflow before 25.04 has the channel of versions only with this flag.
nextflow.preview.topic = true

include { FIRSTTOUCH_RUN } from './modules/firsttouch/run/main'

process BWA_INDEX {
    input:
    tuple val(meta), path(fasta)

    output:
    tuple val(meta), path('bwa')

    script:
    """
    mkdir -p bwa
    bwa index -p bwa/genome ${fasta}
    """
}

process SAMTOOLS_FLAGSTAT {
    tag "$meta.id"
    publishDir params.outdir, mode: 'copy'

    input:
    tuple val(meta), path(bam)

    output:
    tuple val(meta), path('*.flagstat')

    script:
    """
    samtools flagstat ${bam} > ${meta.id}.flagstat
    """
}

workflow {
    reads = Channel.fromFilePairs(params.reads, checkIfExists: true).map { id, files -> [[id: id], files] }
    genome = Channel.value([[id: 'genome'], file(params.genome, checkIfExists: true)])
    index = BWA_INDEX(genome)
    FIRSTTOUCH_RUN(reads, index, [[:], []], params.command)
    SAMTOOLS_FLAGSTAT(FIRSTTOUCH_RUN.out.bam)
    FIRSTTOUCH_RUN.out.tsv
        .map { meta, table -> table }
        .collectFile(name: 'firsttouch.tsv', storeDir: params.outdir, keepHeader: true, sort: true)
    Channel.topic('versions')
        .map { process, program, version -> "${program}: ${version}" }
        .unique()
        .collectFile(name: 'versions.yml', storeDir: params.outdir, newLine: true, sort: true)
}
