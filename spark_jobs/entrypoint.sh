#!/bin/bash
# The entry point of the image. The roles, their arguments and the variables are those of Spark's own image
# (resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh of Spark 4):
#   driver …         what Kubernetes starts for `spark-submit --deploy-mode cluster`: Spark's driver, in client mode
#   executor         what a driver on Kubernetes starts: an executor, which needs no Python
#   all else         the landing job in its own process, with these arguments: `--once`, `erase …`
set -eu
case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
executor)
    options=()
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_$number"
        [[ -v $name ]] || break
        options+=("${!name}")
    done
    path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}:$SPARK_HOME/jars/*"
    path+="${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}"
    exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$path" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec python -P -m headrace_lake "$@"
    ;;
esac
