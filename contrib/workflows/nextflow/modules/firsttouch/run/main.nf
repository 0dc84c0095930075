// SPDX-License-Identifier: Apache-2.0
process FIRSTTOUCH_RUN {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta) , path(reads)
    tuple val(meta2), path(index)
    tuple val(meta3), path(fasta)
    val   command

    output:
    tuple val(meta), path("*.bam") , emit: bam , optional: true
    tuple val(meta), path("*.bai") , emit: bai , optional: true
    tuple val(meta), path("*.csi") , emit: csi , optional: true
    tuple val(meta), path("*.cram"), emit: cram, optional: true
    tuple val(meta), path("*.crai"), emit: crai, optional: true
    tuple val(meta), path("*.log") , emit: log
    tuple val(meta), path("*.tsv") , emit: tsv
    tuple val(meta), path("*_mqc.json"), emit: multiqc, optional: true
    tuple val("${task.process}"), val('firsttouch'), eval("firsttouch --version | sed '1!d;s/.* //'"), topic: versions, emit: versions_firsttouch
    tuple val("${task.process}"), val('samtools'), eval("samtools version | sed '1!d;s/.* //'"), topic: versions, emit: versions_samtools

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    def output = fasta ? "${prefix}.cram --reference ${fasta}" : "${prefix}.bam"
    def files = reads instanceof List ? reads : [reads]
    def call = command
        .replace('{threads}', "${task.cpus}")
        .replace('{id}', "${meta.id}")
        .replace('{index}', "${index}")
        .replace('{reads}', files.join(' '))
        .replace('{reads1}', "${files[0]}")
        .replace('{reads2}', "${files[-1]}")
    """
    firsttouch run \\
        -o ${output} \\
        --sort --tsv ${prefix}.tsv ${args} \\
        -- ${call} 2> ${prefix}.log || { status=\$?; cat ${prefix}.log >&2; exit \$status; }
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    def output = fasta ? "${prefix}.cram ${prefix}.cram.crai" : "${prefix}.bam ${prefix}.bam.bai"
    """
    touch ${output} ${prefix}.log ${prefix}.tsv
    """
}
