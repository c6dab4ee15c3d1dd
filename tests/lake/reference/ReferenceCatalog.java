import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Apache Iceberg's own REST catalog, over an SQLite file in the folder that is its argument. Prints its port. */
public class ReferenceCatalog {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    var catalog =
        CatalogUtil.buildIcebergCatalog(
            "reference",
            Map.of(
                "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri", "jdbc:sqlite:" + folder + "/reference.db",
                "warehouse", folder + "/ice"),
            new Configuration());
    var handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", 0));
    server.setHandler(handler);
    server.start();
    System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    server.join();
  }
}
